"""What `verify` refuses, with the node at fault."""

from __future__ import annotations

import numpy as np
import pytest

import partita.graph as pt
from partita.graph.errors import GraphError, PartitaError, TypeMismatch
from partita.graph.node import NodeEntry
from partita.graph.readers.text import parse
from partita.graph.verify import verify


def _x(dtype="float32"):
    return pt.variable("x", dtype, (3,))


def _two_values_of_a_name():
    x = _x()
    return pt.Graph([pt.op("Neg", x, name="a", output_names=["v"]), pt.op("Abs", x, name="b", output_names=["v"])])


def _wrong_output():
    y = pt.op("Neg", _x(), name="y")
    return pt.Graph([pt.op("Abs", NodeEntry(y, 3), name="z")])


def _cut_attribute():
    y = pt.op("LeakyRelu", _x(), name="y", alpha=0.5)
    return pt.Graph([y.evolve(attrs={"alpha": "much"})])


def _unconnected():
    return pt.Graph([pt.call(pt.Graph([pt.op("Neg", _x(), name="n")]), name="call")])


def _shared_name_in_a_body():
    inner = pt.Graph([pt.op("Neg", _x(), name="y")], name="inner")
    return pt.Graph([pt.op("Abs", pt.call(inner, pt.variable("x", "float32", (3,)), name="call"), name="y")])


def _other_opsets():
    inner = pt.Graph([pt.op("Neg", _x(), name="n")], name="inner", opsets={"": 13})
    return pt.Graph([pt.call(inner, pt.variable("x", "float32", (3,)), name="call")])


def _open_body():
    body = pt.Graph([pt.op("Neg", _x(), name="n")], name="body")
    condition = pt.variable("c", "bool", ())
    return pt.Graph([pt.op("If", condition, name="y", then_branch=body, else_branch=body)])


def _wrong_constant():
    w = pt.constant(np.ones(3, np.float32), "w")
    return pt.Graph([w.evolve(output_types=(pt.TensorType("float32", (4,)),))])


@pytest.mark.parametrize("make, error, message", [
    (_two_values_of_a_name, GraphError, "node 'b' .*two values are named 'v'"),
    (_wrong_output, GraphError, "node 'z' .*node 'y' has no output 3"),
    (_cut_attribute, TypeMismatch, "node 'y' .*'alpha' must be FLOAT, not 'much'"),
    (_unconnected, GraphError, "node 'call' .*0 inputs and its body 1"),
    (_shared_name_in_a_body, GraphError, "two nodes are named 'y'"),
    (_other_opsets, GraphError, "node 'call' .*share one opset map"),
    (_open_body, GraphError, "node 'y' .*the body 'then_branch' has 1 inputs; the node gives it 0 inputs and 0 captured"),
    (_wrong_constant, TypeMismatch, "node 'w' .*has the shape"),
])
def test_what_is_wrong_is_named(make, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        verify(make())


@pytest.mark.parametrize("line, message", [
    ("y = Add(x, i)", "input 1 .*is int64 and input 0 .* is float32; they must be the same"),
    ("y = Not(x)", "input 0 .* is float32\n  It may be bool"),
    ("y = Neg(x) : int32[3]", "output 0 .* is int32 and input 0 .* is float32"),
    ("y = Rleu(x)", "has no op 'Rleu'"),
    ("y = Relu(x, x)", "has 1 inputs, not 2"),
    ("y, z = Relu(x)", "has 1 outputs, not 2"),
    ("y = Relu(x) {beta=1}", "has no attribute 'beta'"),
    ("y = Cast(x)", "needs the attribute 'to'"),
])
def test_ops_are_held_against_their_schemas(line, message):
    with pytest.raises(PartitaError, match=f"(?s)node 'y'.*{message}"):
        verify(parse(f"opset 21\n\ngraph net(x: float32[3], i: int64[3]) -> (y) {{\n  {line}\n}}\n"))


def test_ops_of_engines_are_left_alone():
    verify(parse("opset 21, my 1\n\ngraph net(x: float32[3]) -> (y) {\n  y = my::Swish(x, _) {beta=0.5}\n}\n"))


def test_a_body_may_be_shared_by_calls():
    inner = pt.Graph([pt.op("Neg", _x(), name="n")], name="inner")
    first = pt.call(inner, pt.variable("x", "float32", (3,)), name="first")
    verify(pt.Graph([pt.call(inner, first, name="second")]))


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("xba", "node 'b'.*comes before what it depends on, or both are on a cycle: 'a'"),
        ("ab", "node 'a'.*reads a node that is not in the graph: 'x'"),
        ("xb", "node 'b'.*reads a node that is not in the graph: 'a'"),
        ("xaab", "a node is listed twice"),
        ("xa", "the output 'b' is not in the graph"),
    ],
)
def test_nodes_come_after_what_they_depend_on(order, message):
    x = _x()
    a = pt.op("Neg", x, name="a")
    nodes = {"x": x, "a": a, "b": pt.op("Abs", a, name="b")}
    graph = pt.Graph.assembled(tuple(nodes[name] for name in order), [x], [nodes["b"][0]], "g", {"": 21}, ("b",))
    with pytest.raises(GraphError, match=message):
        verify(graph)


@pytest.mark.parametrize("by", ["inputs", "captures", "after"])
def test_a_node_comes_after_those_that_it_reads_captures_or_waits_for(by):
    x, z = _x(), pt.variable("z", "float32", (3,))
    a = pt.op("Neg", x, name="a")
    body = pt.Graph([pt.op("Abs", z, name="z1")], [z], name="body")
    other = pt.Graph([pt.op("Exp", z, name="z2")], [z], name="other")
    chosen = pt.op("If", pt.constant(np.array(True), "c"), captures=[a], name="b", then_branch=body, else_branch=other)
    b = {"inputs": pt.op("Abs", a, name="b"), "captures": chosen, "after": pt.op("Abs", x, name="b").evolve(after=(a,))}[by]
    constants = [entry.node for entry in b.inputs if entry.node.is_constant]
    for order, message in (([x, a, b], None), ([x, b, a], "comes before what it depends on"), ([x, b], "is not in the graph")):
        graph = pt.Graph.assembled((*constants, *order), [x], [b[0]], "g", {"": 21}, ("b",))
        if message is None:
            verify(graph)
            continue
        with pytest.raises(GraphError, match=f"node 'b'.*{message}.*'a'"):
            verify(graph)
