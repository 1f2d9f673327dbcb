"""The default pipeline changes no value: random graphs, and ONNX's own node tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.graph import Graph, Node, constant, op, variable
from partita.graph.interpret import interpret
from partita.passes import DEFAULT, PassTrace, apply_pass, optimize

from .before_after import text
from .node_models import node_tests, sweep

REASONS = {
    "bernoulli": "draws random numbers",
    "image_decoder": "needs a package for images",
    "loop16_seq_none": "ONNX's comparison of outputs takes no sequence in an optional",
    "attention_4d_causal_fp16_expanded": "float16 arithmetic in another order",
}
"""Why the original model itself does not give what its test expects, by part of the test's name."""


def test_it_reads_as_a_sentence() -> None:
    trace = PassTrace()
    g = text("graph net(x: float32[2, 3]) -> (y) { i = Identity(x)\n s = Shape(i)\n r = Reshape(i, s)\n y = Relu(r) }")
    result = optimize(g, trace=trace)
    assert [record.name for record in trace] == list(DEFAULT)
    assert [node.name for node in result.nodes] == ["x", "y"]
    assert result.attrs["shape"]["y"] == (2, 3) and result.attrs["dtype"]["y"] == "float32"


UNARY = ["Relu", "Neg", "Abs", "Identity", "Dropout", "Sigmoid"]
BINARY = ["Add", "Sub", "Mul", "Max"]


@st.composite
def graphs(draw: st.DrawFn, depth: int = 1) -> Graph:
    """Ops on 2×3 arrays, on constants and inputs, with detours by other shapes, duplicates, dead ends, Ifs and calls."""
    count = [0]

    def name() -> str:
        count[0] += 1
        return f"n{depth}_{count[0]}"

    def graph_of(inputs: list[Node], size: int, level: int) -> list[Node]:
        values = [*inputs, constant(np.arange(6, dtype=np.float32).reshape(2, 3), name())]
        for _ in range(draw(st.integers(1, size))):
            values.append(step(values, level))
        return values

    def step(values: list[Node], level: int) -> Node:
        a, b = (draw(st.sampled_from(values)) for _ in range(2))
        kind = draw(st.sampled_from(["unary", "binary", "constant", "reshape", "transpose", "shape", "if" if level else "cast"]))
        if kind == "unary":
            return op(draw(st.sampled_from(UNARY)), a, name=name())
        if kind == "binary":
            return op(draw(st.sampled_from(BINARY)), a, b, name=name())
        if kind == "constant":
            return constant(np.full((2, 3), draw(st.integers(0, 2)), np.float32), name())
        if kind == "reshape":
            flat = op("Reshape", a, constant(np.array([-1]), name()), name=name())
            return op("Reshape", flat, constant(np.array([2, 3]), name()), name=name())
        if kind == "transpose":
            return op("Transpose", op("Transpose", a, perm=[1, 0], name=name()), perm=[1, 0], name=name())
        if kind == "shape":
            return op("Reshape", a, op("Shape", b, name=name()), name=name())
        if kind == "cast":
            return op("Cast", op("Cast", a, to=11, name=name()), to=1, name=name())
        bodies = []
        for _ in range(2):
            inner = [variable(name(), "float32", (2, 3)) for _ in range(2)]
            bodies.append(Graph([graph_of(inner, 3, level - 1)[-1]], inner, name()))
        condition = draw(st.sampled_from([constant(np.array(True), name()), asked]))
        return op("If", condition, then_branch=bodies[0], else_branch=bodies[1], captures=[a, b], name=name())

    inputs = [variable(f"x{i}", "float32", (2, 3)) for i in range(2)]
    asked = variable("asked", "bool", ())
    values = graph_of(inputs, 8, depth)
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    names = [f"out{i}" for i in range(len(outputs))]
    return Graph(outputs, [*inputs, asked], nodes=values, output_names=names)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.booleans())
def test_random_graphs_give_what_they_gave(g: Graph, asked: bool) -> None:
    result = optimize(g)
    inputs: list[Any] = [np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32), np.array(asked)]
    assert [n.name for n in result.inputs] == [n.name for n in g.inputs] and result.output_names == g.output_names
    for a, b in zip(interpret(g, inputs), interpret(result, inputs), strict=True):
        np.testing.assert_array_equal(a, b)
    again = optimize(result)
    assert str(again) == str(result), "a second run finds more to do"


@settings(max_examples=20, deadline=None)
@given(graphs())
def test_the_same_graph_gives_the_same_result(g: Graph) -> None:
    assert str(apply_pass(g, "Default")) == str(apply_pass(g, list(DEFAULT)))


def assert_equal_after(cases: list[Any]) -> None:
    listed = dict(sweep(optimize, cases))
    wrong = {name: what for name, what in listed.items() if what not in ("equal", "not computed before")}
    assert not wrong
    unexplained = [
        name for name, what in listed.items() if what != "equal" and not any(part in name for part in REASONS)
    ]
    assert not unexplained, "these originals are not computed, and no reason is written down"


def test_some_of_onnxs_node_tests() -> None:
    assert_equal_after(node_tests()[::15])


@pytest.mark.slow
def test_all_of_onnxs_node_tests() -> None:
    assert len(node_tests()) > 1_800
    assert_equal_after(node_tests())
