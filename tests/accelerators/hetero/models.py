"""Whole models on every kind of placement, against onnxruntime's outputs for the model as it is."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import partita as pt

TOLERANCE = 1e-4

SETTINGS = (
    "reference",
    "onnxruntime",
    "openvino",
    "HETERO:openvino,onnxruntime",
    "HETERO:onnxruntime,reference",
    "onnxruntime, every seventh node on openvino",
    "openvino, every seventh node on reference",
)

DATA = Path(__file__).parents[2] / "data" / "mxnet"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "mxnet"
EXPORTS = Path(__file__).parents[2] / "data" / "torch"


def load(name: str) -> pt.Graph:
    """A model of the zoo, one of MXNet's, or torch's export of a transformer (`torch:` in its real size, `small:` the one beside
    the tests), cut off before a final softmax: behind it large differences look small."""
    kind, _, rest = name.rpartition(":")
    if kind == "zoo":
        return before_softmax(pt.load(name))
    if kind:
        return before_softmax(pt.load(EXPORTS / f"{rest}.onnx" if kind == "small" else exported(rest)))
    folder = DATA if (DATA / f"{name}-symbol.json").exists() else SHARED
    if not (folder / f"{name}-symbol.json").exists():
        pytest.skip("the shared models are not here")
    sizes = {"many_ops": (2, 3, 16, 16), "squeezenet1.1": (1, 3, 224, 224)}
    shape = sizes.get(name, (1, 3, 64, 64))
    graph = pt.load(folder / f"{name}-symbol.json", params=folder / f"{name}-0000.params", shapes={"data": shape})
    return before_softmax(graph)


@functools.cache
def exported(name: str) -> Path:
    """The file of a real transformer: where the benchmarks keep theirs, else exported here if what does it is installed."""
    kept = [Path(os.environ.get("PARTITA_BENCH_CACHE", "")), Path("~/.cache/partita-bench").expanduser()]
    listed = [path for folder in kept for path in sorted((folder / "models").glob(f"{name}-1-*.onnx"))]
    if listed:
        return listed[-1]
    pytest.importorskip("transformers", reason="neither the exported model nor what exports it is here")
    path = Path(tempfile.mkdtemp(prefix="partita-tests-")) / f"{name}.onnx"
    subprocess.run([sys.executable, "-m", "benchmarks.models.transformer", name, "1", str(path)], check=True)
    return path


def before_softmax(graph: pt.Graph) -> pt.Graph:
    """The graph whose outputs that come of a Softmax are what it reads."""
    last = [entry.node.inputs[0] if entry.node.op == "Softmax" else entry for entry in graph.outputs]
    return graph.evolve(outputs=last, nodes=())


def inputs(graph: pt.Graph, seed: int) -> list[np.ndarray]:
    """Random inputs: noise for numbers, tokens for whole numbers."""
    random = np.random.default_rng(seed)
    return [_array(node.name, node[0].type, random) for node in graph.inputs]


def _array(name: str, kind: pt.TensorType, random: np.random.Generator) -> np.ndarray:
    if "float" in kind.dtype:
        return random.standard_normal(kind.shape, np.float32)
    largest = 2 if "mask" in name or "type" in name else 50
    return random.integers(0, largest, kind.shape).astype(kind.dtype)


def bare_outputs(graph: pt.Graph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime alone makes of the model."""
    import onnxruntime

    from partita.graph.writers.onnx import to_model

    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {node.name: array for node, array in zip(graph.inputs, arrays, strict=True)})


def compiled(graph: pt.Graph, setting: str) -> pt.CompiledModel:
    """The model in one of the settings."""
    if ", every seventh node on " not in setting:
        return pt.compile(graph, setting)
    main, other = setting.split(", every seventh node on ")
    where = f"HETERO:{main},{other}"
    placement = pt.query(graph, where)
    for name in list(placement)[::7]:
        placement[name] = other
    result = pt.compile(placement.apply(graph), where)
    assert len(result.units) > 2 and not result.report.moves
    return result


def error(mine: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, as a part of the largest value."""
    assert mine.dtype == wanted.dtype and mine.shape == wanted.shape
    return float(np.abs(mine - wanted).max() / np.abs(wanted).max())


def check(name: str, settings: tuple[str, ...] = SETTINGS) -> None:
    """All settings of one model."""
    graph = load(name)
    first, second = inputs(graph, 0), inputs(graph, 1)
    wanted, other = bare_outputs(graph, first), bare_outputs(graph, second)
    if not name.startswith("mobilenet"):  # the signal dies in their recorded weights
        assert any(error(a, b) > 0.01 for a, b in zip(other, wanted, strict=True)), "any kernel would pass"
    for setting in settings:
        with compiled(graph, setting) as model:
            errors = [error(a, b) for a, b in zip(model(*first), wanted, strict=True)]
            assert max(errors) < TOLERANCE, f"{name} on {setting}: {max(errors):.1e}"
            errors = [error(a, b) for a, b in zip(model(*second), other, strict=True)]
            assert max(errors) < TOLERANCE, f"{name} on {setting}, second input: {max(errors):.1e}"
