"""What torch's exporters write comes in, goes out, and still computes torch's numbers. Needs no torch: see tests/data/torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import partita as pt

FOLDER = Path(__file__).parent / "data" / "torch"
EXPORTS = sorted(path.name for path in FOLDER.glob("*.onnx"))


def truth(name: str) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The inputs and torch's outputs for the export of that file name."""
    with np.load(FOLDER / f"{name.split('.')[0]}.npz") as arrays:
        inputs = {key.removeprefix("in:"): arrays[key] for key in arrays if key.startswith("in:")}
        return inputs, [arrays[key] for key in arrays if key.startswith("out:")]


def check(graph: pt.Graph, name: str, tmp_path: Path) -> None:
    inputs, expected = truth(name)
    pt.save(graph, tmp_path / "out.onnx")
    outputs = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, inputs)
    for item, wanted in zip(outputs, expected, strict=True):
        assert item.dtype == wanted.dtype
        assert np.abs(item - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", EXPORTS)
def test_load_and_save_keep_torch_s_numbers(name: str, tmp_path: Path) -> None:
    graph = pt.load(FOLDER / name)
    assert [node.name for node in graph.inputs] == list(truth(name)[0])
    check(graph, name, tmp_path)


@pytest.mark.parametrize("name", EXPORTS)
def test_known_shapes_fold_the_shape_arithmetic_away(name: str, tmp_path: Path) -> None:
    shapes = {key: array.shape for key, array in truth(name)[0].items()}
    graph = pt.load(FOLDER / name, shapes=shapes)
    graph = pt.apply_pass(graph, ["InferShape", "FoldConstants", "EliminateDead"])
    assert not {"Shape", "Range", "ConstantOfShape"} & {node.op for node in graph.nodes}
    check(graph, name, tmp_path)
