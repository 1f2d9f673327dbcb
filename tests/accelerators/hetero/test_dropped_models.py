"""A model that nobody holds any more gives its memory back at once, and not when Python next looks for cycles."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import partita as pt

pytest.importorskip("tvm")
pytestmark = pytest.mark.usefixtures("without_collector")


def graph(rows: int | str) -> pt.Graph:
    x, w = pt.variable("x", "float32", (rows, 8)), pt.constant(np.ones((8, 8), np.float32))
    return pt.Graph([pt.op("Relu", pt.op("MatMul", x, w))], name="dropped")


@pytest.mark.parametrize("device", ["cpu", "reference", "HETERO:cpu,reference", "opencl"])
@pytest.mark.parametrize("rows", [3, "rows"])
def test_a_dropped_model_is_freed_at_once(device: str, rows: int | str) -> None:
    if device == "opencl" and device not in {each.name for each in pt.devices()}:
        pytest.skip("no driver of OpenCL")
    net = graph(rows)
    nodes = [weakref.ref(node) for node in net.nodes]
    model = pt.compile(net, device)
    for size in (3, 5) if rows == "rows" else (3,):
        assert model(np.ones((size, 8), np.float32))[0].shape == (size, 8)
    compiled = [weakref.ref(unit.compiled) for unit in model.units]
    model_left = weakref.ref(model)
    del model, net
    assert model_left() is None
    assert [left() for left in nodes] == [None] * len(nodes)
    assert [left() for left in compiled] == [None] * len(compiled)
