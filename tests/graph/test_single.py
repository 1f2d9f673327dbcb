"""One op by itself."""

from __future__ import annotations

import numpy as np

import partita as pt
from partita.graph.node import NodeEntry
from partita.graph.single_node import graph_of_node


def variable_or_constant(entry: NodeEntry, number: int) -> NodeEntry:
    return entry if entry.node.value is not None else pt.variable(f"x{number}", type=entry.type)[0]


def test_an_op_alone_stands_between_inputs_of_its_own() -> None:
    x = pt.variable("x", "float32", (2, 3))
    weight = pt.constant(np.ones(3, np.float32), name="weight")
    before = pt.op("Relu", x, name="before")
    whole = pt.apply_pass(pt.Graph([pt.op("Sum", before, weight, before, x, name="sum")]), "InferType")
    alone = graph_of_node(whole["sum"], whole.opsets, variable_or_constant)
    assert [node.name for node in alone.nodes if node.is_op] == ["sum"]
    assert [(node.name, str(node[0].type)) for node in alone.inputs] == [("x0", "float32[2, 3]"), ("x1", "float32[2, 3]")]
    assert [entry.name for entry in alone["sum"].reads] == ["x0", "weight", "x0", "x1"]
    assert whole["sum"].inputs[0].node is whole["before"]


def test_outputs_and_inputs_that_are_left_out_stay_so() -> None:
    x, length = pt.variable("x", "float32", (4, 2, 3)), pt.variable("n", "int32", (2,))
    w, r = (pt.constant(np.ones((1, 20, size), np.float32), name=name) for name, size in (("w", 3), ("r", 5)))
    lstm = pt.op("LSTM", x, w, r, None, length, name="lstm", hidden_size=5, output_names=["y", "", "c"])
    alone = graph_of_node(lstm, {"": 21}, variable_or_constant)
    assert [entry.name for entry in alone.outputs] == ["y", "c"]
    assert [None if entry is None else entry.name for entry in alone["lstm"].inputs] == ["x0", "w", "r", None, "x1"]


def test_names_of_the_inputs_are_those_of_nobody_else() -> None:
    values = [pt.variable(name, "float32", (3,)) for name in ("a", "b")]
    nodes = [
        pt.op("Sum", *values, pt.constant(np.ones(3, np.float32), name="x1"), name="sum"),
        pt.op("Sum", *values, name="x0"),
        pt.op("Sum", *values, name="sum", output_names=["x1"]),
    ]
    inputs = [[node.name for node in graph_of_node(node, {"": 21}, variable_or_constant).inputs] for node in nodes]
    assert inputs == [["x0", "x1_1"], ["x0_1", "x1"], ["x0", "x1_1"]]
