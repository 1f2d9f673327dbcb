"""MXNet's op names for selectors: the reader's own table, held against what the reader makes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

import partita as pt
from partita.graph import UnknownOp
from partita.graph.readers.mxnet import load_mxnet
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.table import _table
from tests.mxnet.data import cases
from tests.mxnet.kept_rows import KEPT, lines


def test_names_are_those_of_onnx() -> None:
    assert pt.mxnet_ops("Convolution", "BatchNorm") == {"Conv", "BatchNormalization"}
    assert pt.mxnet_ops("elemwise_add", "broadcast_add", "_plus_scalar") == {"Add"}
    assert pt.mxnet_ops("Activation") == {"Relu", "Sigmoid", "Tanh", "Softplus", "Softsign"}
    assert pt.mxnet_ops("broadcast_greater", "log_softmax", "argmin") == {"Greater", "LogSoftmax", "ArgMin"}


def test_every_op_of_the_table_is_made_by_its_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: dict[str, set[str]] = defaultdict(set)
    make = Conversion._make

    def recorded(self: Conversion, op_type: str, *rest: Any) -> Any:
        listed[self.kind].add(op_type)
        return make(self, op_type, *rest)

    monkeypatch.setattr(Conversion, "_make", recorded)
    for case in cases().values():
        load_mxnet(case.symbol, case.params, case.shapes)
    named = {op: set(row.onnx) for op, row in _table.items() if row.onnx and op in listed}
    assert len(named) > 100
    assert {op: ops - listed[op] for op, ops in named.items() if ops - listed[op]} == {}


def test_an_unknown_name_is_met_with_a_near_one() -> None:
    with pytest.raises(UnknownOp, match="there is no MXNet op 'Convolutoin' that is read\n  Did you mean 'Convolution'?"):
        pt.mxnet_ops("Convolutoin")


def test_a_list_of_names_is_no_name() -> None:
    with pytest.raises(UnknownOp, match=r"mxnet_ops: \['Convolution'\] is not a name of an op\n  Write mxnet_ops\("):
        pt.mxnet_ops(["Convolution"])  # type: ignore[arg-type]


def test_what_takes_several_ops_is_refused() -> None:
    with pytest.raises(UnknownOp, match="no single ONNX op does what MXNet's smooth_l1 does\n  Look at what pt.load makes"):
        pt.mxnet_ops("smooth_l1")


def test_a_selector_takes_them() -> None:
    x = pt.variable("x", "float32", (1, 2, 4, 4))
    conv = pt.op("Conv", x, pt.constant([[[[1.0]], [[1.0]]]], name="w"), name="conv")
    g = pt.Graph([pt.op("Exp", pt.op("Relu", conv, name="relu"), name="exp")])
    selector = pt.ContainOpSelector(pt.mxnet_ops("Convolution", "Activation"))
    assert [group.nodes for group in pt.plan(g, subgraph_property=pt.PatternProperty(selector)).groups] == [("conv", "relu")]


def test_rows_are_those_that_are_kept() -> None:
    assert lines() == KEPT.read_text("utf-8").splitlines(), "where this is meant: python -m tests.mxnet.kept_rows"
