"""The limit of each kernel of a profile, and the nodes that a row of a profile computes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import partita as pt
from partita.accelerators.runtime.profile import Profile, Row, Span
from tests.accelerators.hetero.small_devices import Ran, device

PEAKS = {"reference": pt.Peak(flops_per_us=1000.0, bytes_per_us=100.0)}


def net() -> pt.Graph:
    """Two products with an activation each, and a sum of their results."""
    x = pt.variable("x", "float32", (4, 8))
    w, v = (pt.constant(np.ones((8, 8), np.float32), name=name) for name in "wv")
    one = pt.op("Relu", pt.op("MatMul", x, w, name="m1"), name="r1")
    two = pt.op("Tanh", pt.op("MatMul", one, v, name="m2"), name="t2")
    return pt.Graph([pt.op("Add", two, one, name="sum")], name="net")


def profiled(model: pt.CompiledModel, *rows: tuple[str, str, float]) -> Profile:
    """A profile with these rows: name, type, microseconds."""
    (unit,) = model.units
    label = unit.device.label
    made = tuple(Row(unit.name, i, name, "EXECUTED", kind, us, us, label, "") for i, (name, kind, us) in enumerate(rows))
    return Profile("net", "inputs made up", 0.0, (Span(unit.name, label, 0.0, 0.0, made),), ())


CASES = [
    # rows of a device, and the nodes, FLOP and bytes of each: kernels named for their first op, for their last, and for the whole
    ([("m1", "MatMul+Relu", 1.0), ("m2", "MatMul+Tanh+Add", 1.0)],
     {"m1": ("m1 r1", 512 + 32, 128 + 256 + 128), "m2": ("m2 t2 sum", 512 + 64, 128 + 256 + 128)}),
    ([("r1", "MatMul", 1.0), ("t2", "MatMul", 1.0), ("sum", "Add", 1.0)],
     {"r1": ("m1 r1", 544, 512), "t2": ("m2 t2", 544, 512), "sum": ("sum", 32, 384)}),
    ([("m1", "FullyConnected", 1.0), ("m2", "FullyConnected", 1.0), ("sum", "Eltwise", 1.0)],
     {"m1": ("m1 r1", 544, 512), "m2": ("m2 t2", 544, 512), "sum": ("sum", 32, 384)}),
    ([("sum", "Snippet", 1.0)], {"sum": ("m1 r1 m2 t2 sum", 1120, 128 + 512 + 128)}),
    ([("reference_0", "Subgraph", 1.0)], {"reference_0": ("m1 r1 m2 t2 sum", 1120, 768)}),
]


@pytest.mark.parametrize("rows, wanted", CASES)
def test_rows_have_the_nodes_that_were_fused_into_them(rows, wanted):
    model = pt.compile(net(), "reference")
    limits = pt.roofline(model, profiled(model, *rows), PEAKS)
    assert {one.name: (" ".join(one.nodes), one.flops, one.bytes) for one in limits.kernels} == wanted
    assert limits.unknown == ()


def test_the_limit_is_what_takes_longer_at_the_peak():
    model = pt.compile(net(), "reference")
    profile = profiled(model, ("reference_0", "Subgraph", 10.24))
    (one,) = pt.roofline(model, profile, PEAKS).kernels
    assert (one.limit, one.flops_us, one.bytes_us) == ("bytes", 1.12, 7.68)
    assert (one.factor, one.reached) == (pytest.approx(7.68 / 1.12), 0.75)
    limits = pt.roofline(model, profile, {"reference": pt.Peak(100.0, 100.0)})
    (one,) = limits.kernels
    assert (one.limit, one.factor, one.reached) == ("operations", pytest.approx(11.2 / 7.68), pytest.approx(11.2 / 10.24))
    row = limits.to_dict()["kernels"][0]
    assert [row[key] for key in ("limit", "flops", "bytes")] == ["operations", 1120, 768]
    assert limits.to_dict()["peaks"] == {"reference": {"flops_per_us": 100.0, "bytes_per_us": 100.0}}
    assert limits.to_table().caption.plain == "reference: 100 MFLOP/s, 0.1 GB/s"


def test_kernels_that_move_data_are_limited_by_bytes_alone():
    x = pt.variable("x", "float32", (2, 3))
    model = pt.compile(pt.Graph([pt.op("Transpose", x, name="t")], name="net"), "reference")
    limits = pt.roofline(model, profiled(model, ("t", "Transpose", 0.0)), PEAKS)
    (one,) = limits.kernels
    assert (one.limit, one.factor, one.bytes, one.reached) == ("bytes", math.inf, 48, 0.0)
    assert limits.to_dict()["kernels"][0]["factor"] is None
    assert [cell.plain for cell in limits.to_table().columns[7].cells] == [""]


def test_rows_of_no_node_and_dynamic_sizes_are_listed_apart():
    model = pt.compile(net(), "reference")
    rows = [("m1", "MatMul", 2.0), ("m1", "Reorder", 1.0), ("ReorderOutput", "ReorderOutput", 1.0), ("x", "Copy", 3.0)]
    limits = pt.roofline(model, profiled(model, *rows), PEAKS)
    assert [one.name for one in limits.kernels] == ["m1"] and limits.kernels[0].real_us == 2.0
    assert limits.unknown == ("m1", "ReorderOutput", "x")
    rows = pt.Graph([pt.op("Relu", pt.variable("x", "float32", ("N", 2)), name="r")], name="net")
    model = pt.compile(rows, "reference")
    assert pt.roofline(model, profiled(model, ("r", "Relu", 1.0)), PEAKS).unknown == ("r",)


def test_the_slowest_come_first_in_the_table():
    model = pt.compile(net(), "reference")
    limits = pt.roofline(model, profiled(model, ("m1", "MatMul+Relu", 1.0), ("m2", "MatMul", 2.0), ("sum", "Add", 3.0)), PEAKS)
    assert [cell.plain for cell in limits.to_table(2).columns[0].cells] == ["sum", "m2"]


class Timed(Ran):
    """Says that a call took as long as its graph has elements."""

    def profile_rows(self):
        (entry,) = self.graph.outputs
        return (pt.accelerators.ProfileRow(entry.node.name, str(entry.node.op), "EXECUTED", 2.0, 2.0, "numpy"),)


def test_peaks_are_measured_on_the_device(monkeypatch):
    monkeypatch.setattr("partita.measuring.roofline.ELEMENTS", 1 << 10)
    with device("one", subgraph_type=type("Made", (Timed,), {})):
        model = pt.compile(net(), "one")
        limits = pt.roofline(model)
    assert limits.peaks == {"one": pt.Peak(flops_per_us=float(512**3), bytes_per_us=float(4 << 10))}
    assert [one.name for one in limits.kernels] == ["sum"]


@pytest.mark.parametrize("arguments, error", [
    ((net(),), "roofline: it is not a compiled model"),
    ((None, 5), "option profile: it is not a profile: 5"),
    ((None, None, {"reference": 5}), "option peaks: they are not a table"),
])
def test_wrong_arguments_are_refused(arguments, error):
    given = [pt.compile(net(), "reference") if arguments[0] is None else arguments[0], *arguments[1:]]
    with pytest.raises(pt.PartitaError, match=error):
        pt.roofline(*given)
    with pytest.raises(pt.PartitaError, match="a peak of -1"):
        pt.Peak(-1, 5)


def test_a_device_without_a_product_needs_peaks():
    with device("one", ops="Relu"):
        x = pt.variable("x", "float32", (2,))
        model = pt.compile(pt.Graph([pt.op("Relu", x, name="r")], name="net"), "one")
        with pytest.raises(pt.PartitaError, match=r"(?s)the peaks of 'one' cannot be measured: .*Give them: peaks=\{'one'"):
            pt.roofline(model)
