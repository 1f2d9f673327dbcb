"""Patterns: the language, and what is matched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.graph import Graph, Node, PartitaError, constant, op, variable
from partita.partition import ANY, CONST, ContainOpSelector, Pattern, PatternProperty
from partita.passes import apply_pass
from tests.graphs.drawn import graphs
from tests.graphs.topologies import SHAPE

from .making import check_partition_of, groups_of


def matches(g: Graph, pattern: Pattern) -> list[set[str]]:
    """What the pattern takes."""
    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(pattern, "p"))
    check_partition_of(g, result, unconnected=False)
    return groups_of(result)


def line(*names: str, outputs: tuple[str, ...] = ()) -> Graph:
    """Unary ops by name: "Relu" makes relu0, and so on."""
    value: Node = variable("x", "float32", SHAPE)
    listed = {}
    for i, name in enumerate(names):
        value = listed[f"{name.lower()}{i}"] = op(name, value, name=f"{name.lower()}{i}")
    return Graph([*(listed[name] for name in outputs), value])


def test_a_sequence() -> None:
    g = line("Exp", "Relu", "Neg", "Abs", "Relu", "Neg")
    assert matches(g, Pattern("Relu", "Neg")) == [{"relu1", "neg2"}, {"relu4", "neg5"}]


def test_alternatives_and_optional_parts_the_longest_match_wins() -> None:
    pattern = Pattern("Exp", "Neg?", "Relu|Abs?")
    assert matches(line("Exp", "Neg", "Abs"), pattern) == [{"exp0", "neg1", "abs2"}]
    assert matches(line("Exp", "Relu", "Neg"), pattern) == [{"exp0", "relu1"}]
    assert matches(line("Exp", "Sin"), pattern) == [{"exp0"}]
    assert matches(line("Neg", "Abs"), pattern) == []


def test_convolution_with_what_follows_it() -> None:
    x, w = variable("x", "float32", (1, 2, 4, 4)), constant(np.full((2, 2, 1, 1), 0.5, np.float32), "w")
    ones, zeros = constant(np.ones(2, np.float32), "ones"), constant(np.zeros(2, np.float32), "zeros")
    conv = op("Conv", x, w, name="conv")
    norm = op("BatchNormalization", conv, ones, zeros, zeros, ones, name="norm")
    add = op("Add", x, norm, name="add")
    relu = op("Relu", add, name="relu")
    last = op("Conv", relu, w, name="last")
    g = Graph([op("Clip", last, name="clip")])
    pattern = Pattern("Conv", "BatchNormalization?", "Add?", "Relu|Clip?")
    assert matches(g, pattern) == [{"conv", "norm", "add", "relu"}, {"last", "clip"}]


def test_an_inner_value_used_outside_ends_the_match() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="a")
    b = op("Neg", a, name="b")
    g = Graph([op("Relu", b, name="c"), op("Abs", b, name="d")])
    assert matches(g, Pattern("Exp", "Neg", "Relu?")) == [{"a", "b"}]
    assert matches(g, Pattern("Exp", "Neg", "Relu?", shared=True)) == [{"a", "b", "c"}]
    assert matches(g, Pattern("Exp", "Neg", "Relu")) == []


def test_being_a_graph_output_is_a_use() -> None:
    g = line("Exp", "Neg", "Relu", outputs=("neg1",))
    assert matches(g, Pattern("Exp", "Neg", "Relu?")) == [{"exp0", "neg1"}]
    assert matches(g, Pattern("Exp", "Neg", "Relu?", shared=True)) == [{"exp0", "neg1", "relu2"}]


def test_a_used_inner_value_is_explained() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="a")
    g = Graph([op("Relu", a, name="b"), op("Abs", a, name="c")])
    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(Pattern("Exp", "Relu"), "p"))
    outside = {out.node: out.text for out in result.attrs["partition_report"].outside}
    assert outside["a"] == "an inner value of the match of 2 ops from 'a' is used outside, by 'c'"
    assert outside["c"] == "no match of Pattern('Exp', 'Relu') has 'c'"


def test_a_match_that_would_close_a_cycle_is_refused() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="a")
    b = op("Sin", a, name="b")
    g = Graph([op("Add", a, b, name="c")])
    pattern = Pattern("Exp", "Add", shared=True)
    assert matches(g, pattern) == []
    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(pattern, "p"))
    outside = {out.node: (out.rule, out.text) for out in result.attrs["partition_report"].outside}
    assert outside["a"] == ("cycle", "a match of 2 ops from 'a' would close a cycle through 'b'")


def test_cycles_with_groups_of_earlier_properties_are_refused() -> None:
    x, y = variable("x", "float32", SHAPE), variable("y", "float32", SHAPE)
    a1 = op("Exp", x, name="a1")
    b1 = op("Sin", a1, name="b1")
    b2 = op("Sin", y, name="b2")
    a2 = op("Add", a1, b2, name="a2")
    g = Graph([a2, op("Mul", b1, b2, name="b3")])
    first = PatternProperty(ContainOpSelector({"Sin", "Mul"}), "first")
    second = PatternProperty(Pattern("Exp", "Add", shared=True), "second")
    result = apply_pass(g, "PartitionGraph", subgraph_property=[first, second])
    check_partition_of(g, result)
    assert groups_of(result) == [{"b1", "b2", "b3"}]


def matmul(commuted: bool) -> Graph:
    x = variable("x", "float32", (2, 2))
    w, bias = constant(np.ones((2, 2), np.float32), "w"), constant(np.ones(2, np.float32), "bias")
    product = op("MatMul", x, w, name="product")
    added = op("Add", *((bias, product) if commuted else (product, bias)), name="added")
    return Graph([op("Relu", added, name="relu")])


@pytest.mark.parametrize("commuted", [False, True])
def test_operands_of_a_commutative_op_stand_in_any_order(commuted: bool) -> None:
    assert matches(matmul(commuted), Pattern(("Add", "MatMul", CONST), "Relu?")) == [{"product", "added", "relu"}]
    assert matches(matmul(commuted), Pattern("MatMul", ("Add", CONST))) == [{"product", "added"}]
    assert matches(matmul(commuted), Pattern(("Add", "Gemm", ANY))) == []
    assert matches(matmul(commuted), Pattern(("Add", "MatMul", "MatMul"))) == []


def test_operands_of_other_ops_stand_in_order() -> None:
    x = variable("x", "float32", SHAPE)
    a, b = op("Exp", x, name="a"), op("Neg", x, name="b")
    g = Graph([op("Sub", a, b, name="c")])
    assert matches(g, Pattern(("Sub", "Exp", "Neg"))) == [{"a", "b", "c"}]
    assert matches(g, Pattern(("Sub", ANY, "Neg"))) == [{"b", "c"}]
    assert matches(g, Pattern(("Sub", "Neg", "Exp"))) == []
    assert matches(g, Pattern("Neg", ("Sub", "Exp"))) == [{"a", "b", "c"}]


def test_branches_are_sequences_too() -> None:
    x = variable("x", "float32", SHAPE)
    left = op("Neg", op("Exp", x, name="e"), name="n")
    right = op("Abs", x, name="r")
    g = Graph([op("Relu", op("Add", right, left, name="a"), name="z")])
    assert matches(g, Pattern("Abs", ("Add", ["Exp", "Sin?", "Neg"]), "Relu")) == [{"r", "e", "n", "a", "z"}]
    assert matches(g, Pattern(("Add", ["Exp?", "Neg"], "Abs"))) == [{"r", "e", "n", "a"}]


def test_predicates_and_stars() -> None:
    g = line("Exp", "Relu", "Neg")
    assert matches(g, Pattern(lambda node: node.op in ("Exp", "Relu"), "*")) == [{"exp0", "relu1"}]
    assert matches(g, Pattern(lambda node: node.name == "relu1", "Neg")) == [{"relu1", "neg2"}]


def test_other_domains_are_written_out() -> None:
    assert Pattern("com.microsoft::Gelu").parts[0].ops == {("com.microsoft", "Gelu")}
    assert Pattern("ai.onnx::Gelu").parts[0].ops == {("", "Gelu")}


def test_an_earlier_anchor_wins_over_a_longer_match() -> None:
    assert matches(line("Relu", "Exp", "Relu", "Neg"), Pattern("*", "Exp|Neg?")) == [{"relu0", "exp1"}, {"relu2", "neg3"}]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["Conv?"], "a pattern needs a part that is not optional"),
        (["Relu?|Clip"], "The question mark comes at the end"),
        ([3], "3 is not part of a pattern"),
        ([()], "() is not part of a pattern"),
        ([("Add", [])], "has to end with a part that is not optional"),
        (["Relu|"], "'Relu|' is not part of a pattern"),
    ],
)
def test_what_is_no_pattern(parts: list[object], message: str) -> None:
    with pytest.raises(PartitaError) as caught:
        Pattern(*parts)
    assert message in str(caught.value)


def test_a_predicate_that_misbehaves() -> None:
    with pytest.raises(PartitaError) as caught:
        matches(line("Exp", "Neg"), Pattern(lambda node: None))
    where = "property 'p', hook predicate of the pattern, node 'exp0' (Exp)"
    assert f"{where}: it returned None (NoneType), not a bool" in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(
    g=graphs(devices=[None]),
    shared=st.booleans(),
    parts=st.sampled_from(
        [["*", "*?", "*?"], ["Add|Relu", "*?", "Mul?"], [("Add|Sub|Mul", "*", ["*", "Neg?", "*"])], ["Relu?", ("Add", "*")]]
    ),
)
def test_random_graphs(g: Graph, shared: bool, parts: list[object]) -> None:
    matches(g, Pattern(*parts, shared=shared))


def test_near_linear_on_a_hub() -> None:
    x = variable("x", "float32", SHAPE)
    hub = op("Exp", x, name="hub")
    g = Graph([op("Neg", op("Add", hub, x), name=f"n{i}") for i in range(3000)])
    assert len(matches_only(g, Pattern("Add", "Neg"))) == 3000
    assert len(matches_only(g, Pattern("Exp", "Add", "Neg", shared=True))) == 1


def test_many_optional_parts_are_not_tried_in_all_combinations() -> None:
    """A chain fits 25 optional parts in 2**25 ways."""
    g = line(*["Relu"] * 60, "Exp")
    assert matches_only(g, Pattern(*["Relu?"] * 25, "Tanh")) == []
    assert matches_only(g, Pattern(*["Relu?"] * 25, "Exp")) == [{*(f"relu{i}" for i in range(35, 60)), "exp60"}]


def matches_only(g: Graph, pattern: Pattern) -> list[set[str]]:
    return groups_of(apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(pattern, "p"), verify=False))
