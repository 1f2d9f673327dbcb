"""What fails, made as small as it can be while it still fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.cli import reduce
from tests.cli.conftest import Command, partita  # noqa: F401  a fixture
from tests.graphs.small_models import convolutions, inputs_of, transformer
from tests.insight.planting import Plant, faulty
from tests.waiting import is_running, until


def wrong_on(device: str, tolerance: float = 1e-3) -> Any:
    """Says whether some output on the device is not what the reference gives."""

    def fails(graph: pt.Graph, inputs: Mapping[str, Any]) -> bool:
        ours, theirs = (list(pt.compile(graph, label)(dict(inputs))) for label in (device, "reference"))
        return any(np.abs(a - b).max() > tolerance * np.abs(b).max() for a, b in zip(ours, theirs, strict=True))

    return fails



@pytest.mark.parametrize("plant", [Plant("off", "mixed"), Plant("fused", "down", "gelu_0"), Plant("axis", "softmax_0")])
def test_at_most_the_faulty_nodes_are_left(plant: Plant) -> None:
    graph = transformer()
    with faulty("reference", plant) as device:
        reduction = pt.reduce(graph, inputs_of(graph)[0], wrong_on(device))
        assert set(reduction.nodes) == plant.nodes
        assert wrong_on(device)(reduction.graph, reduction.inputs)


def test_sizes_shrink_as_far_as_the_graph_allows() -> None:
    graph = convolutions()
    with faulty("reference", Plant("off", "second")) as device:
        small = pt.reduce(graph, inputs_of(graph)[0], wrong_on(device))
        kept = pt.reduce(graph, inputs_of(graph)[0], wrong_on(device), shapes=False)
    (array,) = small.inputs.values()
    assert array.shape == (1, 8, 1, 1)
    assert str(small).split("\n") == [
        "convolutions: 1 op of 11 left, 9 candidates tried", "  second (Conv)", "  reads maxpool_0: float32[1, 8, 1, 1]",
    ]
    assert next(iter(kept.inputs.values())).shape == (1, 8, 6, 6)


def test_sizes_that_the_trusted_device_refuses_are_not_tried() -> None:
    """Position 5 exists in the eight of the model, and in no fewer than six."""
    x = pt.variable("x", "float32", (8, 6))
    graph = pt.Graph([pt.op("Gather", x, pt.constant(np.array(5)), axis=0)])
    reduction = pt.reduce(graph, {"x": np.ones((8, 6), np.float32)}, lambda part, inputs: True)
    assert {name: array.shape for name, array in reduction.inputs.items()} == {"x": (8, 1)}


def test_two_nodes_far_apart_keep_what_lies_between() -> None:
    graph = transformer()

    def fails(part: pt.Graph, inputs: Mapping[str, Any]) -> bool:
        return {"keys", "softmax_0"} <= {node.name for node in part.nodes if node.is_op}

    assert pt.reduce(graph, inputs_of(graph)[0], fails).nodes == ("keys", "transpose_0", "matmul_0", "mul_0", "softmax_0")


def test_a_model_that_does_not_fail_is_an_error() -> None:
    with pytest.raises(pt.AcceleratorError, match="the whole model does not fail"):
        pt.reduce(transformer(), None, lambda graph, inputs: False)


SCRIPT = """\
import sys
import numpy, onnx
model, arrays = onnx.load(sys.argv[1]), numpy.load(sys.argv[2])
assert [value.name for value in model.graph.input] == list(arrays)
sys.exit(3 * any(node.op_type == "Gelu" for node in model.graph.node))
"""


def test_a_command_says_what_fails(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    pt.save(transformer(), "net.onnx")
    Path("check.py").write_text(SCRIPT)
    done = partita(f"reduce net.onnx --fails '{sys.executable} check.py' -o small --json")
    assert done.json["nodes"] == ["gelu_0"], done.err
    assert done.json["ops"] == 16
    left = pt.load("small/model.onnx")
    assert [node.op for node in left.nodes if node.is_op] == ["Gelu"]
    with np.load("small/inputs.npz") as arrays:
        assert {name: array.shape for name, array in arrays.items()} == {"up": (1, 1, 1)}


def test_a_function_says_what_fails(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    pt.save(transformer(), "net.onnx")
    Path("check.py").write_text("def fails(graph, inputs):\n    return any(node.op == 'Softmax' for node in graph.nodes)\n")
    done = partita("reduce net.onnx --fails check.py:fails")
    assert "1 op of 16 left" in done.out
    assert partita("reduce net.onnx --fails check.py:no").err.startswith("reading net.onnx\n")
    assert "it defines no function 'no'" in partita("reduce net.onnx --fails check.py:no").err
    assert "there is no such file" in partita("reduce net.onnx --fails nowhere.py:no").err
    assert "the command cannot be run: No such file" in partita("reduce net.onnx --fails no-such-program").err
    assert "No closing quotation\n  Close each quotation mark" in partita("""reduce net.onnx --fails "python 'check.py" """).err


def test_the_model_itself_is_not_overwritten(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    Path("small").mkdir()
    pt.save(transformer(), "small/model.onnx")
    before = Path("small/model.onnx").read_bytes()
    done = partita("reduce small/model.onnx --fails false -o small")
    assert "this would overwrite the model itself" in done.err
    assert Path("small/model.onnx").read_bytes() == before


def test_a_command_that_hangs_is_a_failure_and_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "SECONDS", 1.0)
    script = tmp_path / "hang.sh"
    script.write_text(f"sleep 1000 & echo $! > {tmp_path}/child; wait\n")
    command = reduce.read_fails(f"sh {script}")
    graph = pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2,)), name="relu")])
    arrays = {"x": np.ones(2, np.float32)}
    assert command(graph, arrays)
    child = int((tmp_path / "child").read_text())
    assert until(lambda: not is_running(child))


def test_errors_of_the_function_and_of_candidates() -> None:
    """A candidate on which the function itself fails shows another failure, and is not taken for this one."""
    graph = transformer()

    def fails(part: pt.Graph, inputs: Mapping[str, Any]) -> bool:
        ops = [node for node in part.nodes if node.is_op]
        if len(ops) < 3:
            raise pt.AcceleratorError("too small for the device")
        return any(node.op == "Softmax" for node in ops)

    assert len(pt.reduce(graph, None, fails).nodes) == 3

    def broken(part: pt.Graph, inputs: Mapping[str, Any]) -> bool:
        raise pt.AcceleratorError("no driver")

    with pytest.raises(pt.AcceleratorError, match="on the whole model it raises no driver"):
        pt.reduce(graph, None, broken)
    with pytest.raises(pt.BadConfig, match="reduce: most is 0"):
        pt.reduce(graph, None, fails, most=0)


def test_a_failure_that_comes_now_and_then_is_asked_about_several_times() -> None:
    asked: list[int] = []

    def fails(graph: pt.Graph, arrays: Any) -> bool:
        asked.append(len(asked))
        return len(asked) % 3 == 0 and any(node.op == "Softmax" for node in graph.nodes)

    assert pt.reduce(transformer(), None, fails, repeats=3, shapes=False).nodes == ("softmax_0",)
    with pytest.raises(pt.AcceleratorError, match="the whole model does not fail"):
        asked.clear()
        pt.reduce(transformer(), None, fails, shapes=False)
    with pytest.raises(pt.BadConfig, match="repeats is 0"):
        pt.reduce(transformer(), None, fails, repeats=0)


def test_a_candidate_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    """The failure is the hang of the whole; another candidate that hangs does not fail where the whole only says so."""

    def hangs(graph: pt.Graph, arrays: Any) -> bool:
        if any(node.op == "Softmax" for node in graph.nodes):
            child = subprocess.Popen(["sleep", "600"])
            with open(tmp_path / "children", "a") as file:
                file.write(f"{child.pid}\n")
            child.wait()
        return False

    assert pt.reduce(transformer(), None, hangs, seconds=0.5, shapes=False).nodes == ("softmax_0",)
    children = [int(line) for line in (tmp_path / "children").read_text().split()]
    assert children
    assert until(lambda: not any(map(is_running, children)), 20.0)
    with pytest.raises(pt.AcceleratorError, match="the whole model does not fail"):
        pt.reduce(transformer(), None, lambda graph, arrays: False, seconds=5.0)


def test_an_end_of_the_process_is_a_failure() -> None:
    def crashes(graph: pt.Graph, arrays: Any) -> bool:
        if any(node.op == "Softmax" for node in graph.nodes):
            os.abort()
        return False

    assert pt.reduce(transformer(), None, crashes, seconds=20.0, shapes=False).nodes == ("softmax_0",)
