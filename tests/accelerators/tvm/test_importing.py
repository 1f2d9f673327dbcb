"""What TVM's importer cannot take is an error of one line, and nothing on the screen."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.lower.onnx_importer import import_body
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")


@pytest.mark.parametrize(
    ("op", "cause"),
    [
        (("TopK", pt.variable("x", "float32", (4,)), pt.variable("k", "int64", (1,))), "ValueError: TopK k must be a constant"),
        (("Det", pt.variable("x", "float32", (2, 3, 3))), "OpNotImplemented: .*Det"),
    ],
    ids=["in the midst", "before it begins"],
)
def test_a_refusal(op: tuple[str, pt.Node], cause: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CompileError, match=f"TVM's importer refuses it: {cause}"):
        import_body(pt.Graph([pt.op(*op)]))
    gc.collect()
    assert capfd.readouterr() == ("", "")


def test_a_gather_is_nothing_to_warn_of(capfd: pytest.CaptureFixture[str]) -> None:
    x = pt.variable("x", "float64", (8, 16))
    g = pt.Graph([pt.op("Gather", x, pt.constant(np.array([1, -2])), axis=1)], inputs=[x])
    values = np.arange(128, dtype="float64").reshape(8, 16)
    assert np.array_equal(compiled(g).run([values])[0], values[:, [1, 14]])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("op", ["Gather", "GatherElements"])
def test_known_indices_are_counted_from_the_front_by_numpy(op: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM would compile a kernel for each step of it."""
    x, indices = pt.variable("x", "float64", (4, 6)), np.array([[0, -1, 5], [-6, 2, -2], [1, 1, 1], [3, -4, 0]], dtype)
    graph, values = pt.Graph([pt.op(op, x, pt.constant(indices), axis=1)], [x]), np.arange(24, dtype="float64").reshape(4, 6)
    wanted = values[:, indices] if op == "Gather" else np.take_along_axis(values, indices.astype("int64") % 6, axis=1)
    import_body(graph)
    building, built = sys.modules["tvm.tirx.build"], list[object]()
    real = building.codegen_build
    monkeypatch.setattr(building, "codegen_build", lambda *given: built.append(given) or real(*given))
    np.testing.assert_array_equal(compiled(graph).run([values])[0], wanted)
    assert built == []


def test_a_sequence_that_only_an_unused_input_of_a_call_reads() -> None:
    """TVM's importer looks for the end of a sequence of one tensor for ever."""
    x = pt.variable("x", "float32", (9, 2))
    joined = pt.op("ConcatFromSequence", pt.op("SequenceConstruct", x), axis=-1)
    used, unused = pt.variable("used", "float32", (9, 2)), pt.variable("unused", "float32", None)
    body = pt.Graph([pt.op("Abs", used)], [used, unused], name="body")
    graph = pt.apply_pass(pt.Graph([pt.call(body, x, joined, name="call")]), "InferShape")
    value = np.linspace(-1, 1, 18, dtype=np.float32).reshape(9, 2)
    with pt.compile(graph, "HETERO:cpu,reference") as model:
        np.testing.assert_array_equal(model(value)[0], np.abs(value))
