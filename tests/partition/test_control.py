"""Control dependencies: nobody is asked about them, no subgraph grows over them, and they close cycles all the same."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.graph import Graph, Node, op, variable
from partita.partition import ContainOpSelector, Pattern, PatternProperty, SubgraphSelector
from partita.passes import apply_pass
from tests.graphs.topologies import SHAPE

from .making import Property, Recorder, check_partition_of, groups_of


def side_by_side() -> Graph:
    """a -> b, and c, which reads x and only comes after b; d reads c."""
    x = variable("x", "float32", SHAPE)
    b = op("Neg", op("Relu", x, name="a"), name="b")
    c = op("Relu", x, name="c").evolve(after=(b,))
    return Graph([b, op("Neg", c, name="d")])


class Willing(SubgraphSelector):
    """Stateless, says yes to everything, and writes down each edge that it is asked about."""

    stateless = True

    def __init__(self, asked: list[tuple[str, str]]) -> None:
        self.asked = asked

    def select(self, node: Node) -> bool:
        return True

    def select_input(self, cur: Node, new: Node) -> bool:
        self.asked.append((new.name, cur.name))
        return True

    def select_output(self, cur: Node, new: Node) -> bool:
        self.asked.append((cur.name, new.name))
        return True


def test_the_walk_does_not_ask_about_them() -> None:
    g, log = side_by_side(), []
    result = apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: Recorder(log, {"Relu", "Neg"})))
    assert [entry for entry in log if entry.startswith(("input", "output"))] == ["output a b", "output c d"]
    assert groups_of(result) == [{"a", "b"}, {"c", "d"}]
    check_partition_of(g, result)


@pytest.mark.parametrize(("growth", "groups"), [("largest", 2), ("seed", 2), ("waves", 1)])
def test_nor_do_the_growths_of_stateless_selectors(growth: str, groups: int) -> None:
    g = side_by_side()
    asked: list[tuple[str, str]] = []
    result = apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: Willing(asked)), growth=growth)
    assert set(asked) == {("a", "b"), ("c", "d")}
    assert len(groups_of(result)) == groups
    check_partition_of(g, result, unconnected=growth == "waves")


@pytest.mark.parametrize("growth", ["largest", "seed", "walk"])
def test_equal_affinities_are_not_joined_by_them(growth: str) -> None:
    g = side_by_side()
    for node in g.nodes:
        node.affinity = "gpu" if node.is_op else None
    result = apply_pass(g, "PartitionGraph", growth=growth)
    assert groups_of(result) == [{"a", "b"}, {"c", "d"}]
    (border,) = [border for border in result.attrs["partition_report"].borders if border.rule != "input"]
    assert (border.producer, border.consumer, border.rule) == ("b", "c", "control")
    assert border.text == "'c' comes after 'b' and reads nothing of it: subgraphs follow values"


@pytest.mark.parametrize("growth", ["largest", "seed", "walk", "waves"])
def test_they_close_cycles(growth: str) -> None:
    """a -> c and a -> d -> e, where h, of no subgraph, comes after c, and e after h."""
    x = variable("x", "float32", SHAPE)
    a = op("Relu", x, name="a")
    c = op("Relu", a, name="c")
    h = op("Exp", x, name="h").evolve(after=(c,))
    e = op("Relu", op("Relu", a, name="d"), name="e").evolve(after=(h,))
    g = Graph([c, h, e])
    result = apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: ContainOpSelector({"Relu"})), growth=growth)
    check_partition_of(g, result, unconnected=growth == "waves")
    assert not any({"c", "e"} <= group for group in groups_of(result))


def test_patterns_follow_values() -> None:
    g, shown = side_by_side(), []

    def relu(node: Node) -> bool:
        shown.append(node.name)
        return node.op == "Relu"

    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(Pattern("Neg", relu)))
    assert groups_of(result) == []
    assert "c" not in shown


def test_what_only_comes_after_an_inner_value_does_not_use_it() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Relu", x, name="a")
    after = op("Exp", x, name="h").evolve(after=(a,))
    g = Graph([op("Neg", a, name="b"), after])
    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(Pattern("Relu", "Neg")))
    assert groups_of(result) == [{"a", "b"}]
    check_partition_of(g, result)


def test_control_inside_the_branch_of_an_if_is_restored_without_a_trace():
    text = """
    graph g(x: float32[3], c: bool[]) -> (y) {
      y = If(c) {
        then_branch=graph t(p) -> (u) { a = Exp(p)
          b = Abs(p)
          u = Neg(b) after(a) },
        else_branch=graph e(q) -> (v) { v = Tanh(q) },
      } captures(x)
    }"""
    g = pt.parse(text)
    branch = dict(g["y"].bodies)["then_branch"]
    prop = pt.PatternProperty(pt.ContainOpSelector({"Abs", "Neg"}), "p")
    part = pt.apply_pass(branch, "PartitionGraph", subgraph_property=prop)
    node = g["y"].evolve(attrs={**g["y"].attrs, "then_branch": part})
    whole = pt.Graph([node], list(g.inputs), name="g")
    assert "partita.after" in str(whole)
    assert str(pt.apply_pass(whole, "InlineSubgraphs")) == str(g)


@pytest.mark.parametrize("devices", ["HETERO:onnxruntime,reference", "HETERO:openvino,onnxruntime"])
def test_a_node_that_only_a_control_dependency_needs_runs_on_engines(devices):
    for package in ("onnxruntime", "openvino"):
        if package in devices:
            pytest.importorskip(package)
    x = pt.variable("x", "float32", (3,))
    side = pt.op("Exp", pt.op("Abs", x, name="abs"), name="side")
    y = pt.op("Neg", x, name="y").evolve(after=(side,))
    model = pt.compile(pt.Graph([y]), devices)
    assert [unit.ops for unit in model.units] == [("abs", "side"), ("y",)]
    assert [len(unit.body.outputs) for unit in model.units] == [1, 1]
    for _ in range(2):
        assert model(np.ones(3, np.float32))[0].tolist() == [-1.0] * 3
