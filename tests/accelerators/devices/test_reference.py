"""The device `reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import RunError
from partita.accelerators.interface.registry import accelerator
from tests.accelerators.devices.making import answer, compiled, run
from tests.graphs.topologies import one_op


def test_it_says_what_it_lacks() -> None:
    assert answer("reference", one_op("Relu", ("float32", (2,)))) is True
    x = pt.variable("x", "int64", (1, 2))
    unknown = pt.op("CategoryMapper", x, name="n", domain="ai.onnx.ml", opset=3, cats_int64s=[1], cats_strings=["a"])
    g = pt.Graph([unknown], opsets={"": 21, "ai.onnx.ml": 3})
    assert answer("reference", g) == "no numpy meaning of ai.onnx.ml.CategoryMapper is known at opset 3"


def test_an_image_is_decoded_where_pillow_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = pt.Graph([pt.op("ImageDecoder", pt.variable("x", "uint8", (20,)), name="n")], opsets={"": 21})
    for spec, expected in ((object(), True), (None, "ImageDecoder needs the package Pillow, which is not installed")):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, spec=spec: spec)
        assert answer("reference", graph) == expected


def test_a_registered_op_needs_its_meaning() -> None:
    pt.register_op("Half", "mine", numpy=lambda x: x / 2)
    pt.register_op("Blank", "mine")
    try:
        x = pt.variable("x", "float32", (2,))
        half = pt.Graph([pt.op("Half", x, domain="mine", name="n")], opsets={"": 21, "mine": 1})
        blank = pt.Graph([pt.op("Blank", x, domain="mine", name="n")], opsets={"": 21, "mine": 1})
        assert answer("reference", half) is True
        assert run("reference", half, np.array([2, 4], np.float32))[0].tolist() == [1, 2]
        assert answer("reference", blank) == "mine.Blank-1 was registered without a numpy meaning"
    finally:
        pt.unregister_op("Half", "mine")
        pt.unregister_op("Blank", "mine")


def test_a_body_is_asked_too() -> None:
    x = pt.variable("x", "float32", (2,))
    inner = pt.Graph([pt.op("Blank", x, domain="mine", name="b")], opsets={"": 21, "mine": 1})
    g = pt.Graph([pt.call(inner, pt.variable("y", "float32", (2,)), name="n")], opsets={"": 21, "mine": 1})
    assert "its body holds 'b': no numpy meaning of mine.Blank" in str(answer("reference", g))


def test_outputs_share_no_memory_with_anything() -> None:
    x = pt.variable("x", "float32", (2, 3))
    c = pt.constant(np.ones((2, 3), np.float32), name="c")
    same = pt.op("Identity", x, name="same")
    fixed = pt.op("Identity", c, name="fixed")
    flat = pt.op("Reshape", x, pt.constant(np.array([6])), name="flat")
    g = pt.Graph([same, same, fixed, flat, x, c], output_names=list("abcdef"))
    model = compiled("reference", g)
    array = np.zeros((2, 3), np.float32)
    listed = list(model.run([array]))
    for i, value in enumerate(listed):
        assert not np.shares_memory(value, array)
        assert not np.shares_memory(value, c.value)
        assert not any(np.shares_memory(value, other) for other in listed[i + 1 :])


def test_out_is_written_to() -> None:
    target = np.empty((2,), np.float32)
    outputs = compiled("reference", one_op("Relu", ("float32", (2,)))).run([np.array([-1, 3], np.float32)], [target])
    assert outputs[0] is target
    assert target.tolist() == [0, 3]


def test_profile_rows() -> None:
    model = compiled("reference", one_op("Relu", ("float32", (2,))), PERF_COUNT=True)
    assert model.profile_rows() == ()
    model.run([np.zeros(2, np.float32)])
    (row,) = model.profile_rows()
    assert (row.node, row.layer_type, row.status, row.exec_type) == ("n", "Relu", "EXECUTED", "numpy")
    assert row.real_us > 0


def test_export_and_import() -> None:
    device, g = accelerator("reference"), one_op("Relu", ("float32", (2,)))
    data = compiled("reference", g).export()
    assert device.import_(data, g, device.full_config({})).run([np.array([-1, 1], np.float32)])[0].tolist() == [0, 1]
    with pytest.raises(pt.AcceleratorError, match=r"not exported by the device 'reference'\s+Compile the model again"):
        device.import_(b"?", g, device.full_config({}))


OUTSIDE: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Gather": ([np.array([0, 3])], {}),
    "GatherElements": ([np.array([[0, -4, 1, 1]])], {}),
    "GatherND": ([np.array([[0, 4]])], {}),
    "ScatterElements": ([np.array([[0, 2**40, 1, 1]]), np.ones((1, 4), "float32")], {}),
    "ScatterND": ([np.array([[-9]]), np.ones((1, 4), "float32")], {}),
    "ReverseSequence": ([np.array([1, 4, 0, 2])], {"batch_axis": 1, "time_axis": 0}),
}


@pytest.mark.parametrize("device", ["reference", "onnxruntime"])
@pytest.mark.parametrize("op", OUTSIDE)
def test_an_index_outside_is_one_error(op: str, device: str) -> None:
    if device == "onnxruntime":
        pytest.importorskip("onnxruntime")
    rest, attrs = OUTSIDE[op]
    arrays = [np.ones((3, 4), "float32"), *rest]
    inputs = [pt.variable(f"x{i}", str(array.dtype), array.shape) for i, array in enumerate(arrays)]
    model = pt.compile(pt.Graph([pt.op(op, *inputs, name="n", **attrs)], inputs=inputs), device)
    with pytest.raises(RunError, match="(?i)out of|outside|ind(ex|ice)|sequence length"):
        model(*arrays)
