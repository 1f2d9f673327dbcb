"""Graphs for the tests of partitioning, and what every partition has to satisfy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from graph import Graph, Node, NodeEntry, constant, op, variable
from graph.interpret import interpret
from partition import PatternProperty, SubgraphProperty, SubgraphSelector
from partition.selector import ContainOpSelector
from passes import apply_pass

SHAPE = (2, 3)


class Property(SubgraphProperty):
    """A property around a function that makes selectors."""

    def __init__(self, make: Any, name: str = "mine", **settings: Any) -> None:
        self.make = make
        self.name = name
        for key, value in settings.items():
            assert hasattr(self, key)
            setattr(self, key, value)

    def create_subgraph_selector(self) -> Any:
        return self.make()


def ops(*names: str) -> SubgraphProperty:
    """A property that takes these ops."""
    return PatternProperty(ContainOpSelector(set(names)), "mine")


def chain(*names: str) -> Graph:
    """Unary ops in a row, named by their op and number."""
    value: Node = variable("x", "float32", SHAPE)
    for i, name in enumerate(names):
        value = op(name, value, name=f"{name.lower()}{i}")
    return Graph([value])


def from_edges(edges: Mapping[str, Sequence[str]], device: Mapping[str, str] | None = None, outputs: Iterable[str] = ()) -> Graph:
    """A graph by names: "a": [] reads x; one producer makes a Relu, two an Add, more a Sum."""
    made: dict[str, Node] = {}
    x = variable("x", "float32", SHAPE)
    for name, producers in edges.items():
        read = [made[p] for p in producers] or [x]
        kind = {1: "Relu", 2: "Add"}.get(len(read), "Sum")
        made[name] = op(kind, *read, name=name)
        made[name].affinity = (device or {}).get(name)
    used = {p for producers in edges.values() for p in producers}
    return Graph([made[name] for name in outputs or [n for n in edges if n not in used]], [x])


@st.composite
def graphs(draw: st.DrawFn, most: int = 14, devices: Sequence[str | None] = ("A", "B", None)) -> Graph:
    """Random graphs with affinities: nodes of several outputs, shared constants, an If that captures, outputs listed twice."""
    x, y = variable("x", "float32", SHAPE), variable("y", "float32", SHAPE)
    k = constant(np.full(SHAPE, 0.5, np.float32), "k")
    values: list[NodeEntry] = [x[0], y[0]]
    used: set[NodeEntry] = set()
    made = []
    for i in range(draw(st.integers(1, most))):
        pick = [values[draw(st.integers(max(0, len(values) - 6), len(values) - 1))] for _ in range(2)]
        kind = draw(st.sampled_from(["Relu", "Neg", "Add", "Mul", "Sub", "AddK", "NegK", "Split", "If"]))
        node = _node(kind, f"n{i}", pick, k)
        node.affinity = draw(st.sampled_from(list(devices)))
        if made and draw(st.integers(0, 9)) == 0:
            node = node.evolve(after=(draw(st.sampled_from(made)),))
        made.append(node)
        used.update(node.reads)
        values += node.outputs if kind != "Split" else ()
        if kind == "Split":
            joined = op("Concat", node[0], node[1], name=f"j{i}", axis=1)
            joined.affinity = draw(st.sampled_from(list(devices)))
            made.append(joined)
            values.append(joined[0])
    outputs = [e for node in made if node.op != "Split" for e in node.outputs if e not in used]
    outputs += draw(st.lists(st.sampled_from(values), max_size=2))
    return Graph(outputs, [x, y], nodes=made)


def _node(kind: str, name: str, read: list[NodeEntry], k: Node) -> Node:
    if kind in ("Relu", "Neg"):
        return op(kind, read[0], name=name)
    if kind == "AddK":
        return op("Add", read[0], k, name=name)
    if kind == "NegK":
        return op("Neg", k, name=name)
    if kind == "Split":
        return op("Split", read[0], constant(np.array([1, 2]), f"{name}_sizes"), name=name, axis=1, n_outputs=2)
    if kind == "If":
        a, b = variable("a", "float32", SHAPE), variable("b", "float32", SHAPE)
        then = Graph([op("Add", a, b, name=f"{name}_then")], [a, b])
        other = Graph([op("Sub", a, b, name=f"{name}_else")], [a, b])
        flag = constant(np.array(len(name) % 2 == 0), f"{name}_flag")
        return op("If", flag, name=name, captures=read, then_branch=then, else_branch=other)
    return op(kind, *read, name=name)


def groups_of(g: Graph) -> list[set[str]]:
    """The subgraphs that the report names."""
    return [set(group.nodes) for group in g.attrs["partition_report"].groups]


def contracted_is_acyclic(g: Graph, groups: Sequence[Iterable[str]]) -> bool:
    """By the definition: with each group as one node, repeatedly take away what nothing is missing for."""
    unit = {node.name: node.name for node in g.nodes}
    for i, group in enumerate(groups):
        unit.update((name, f"group {i}") for name in group)
    edges = {
        (unit[source.name], unit[node.name])
        for node in g.nodes
        for source in [*(e.node for e in node.reads), *node.after]
        if unit[source.name] != unit[node.name]
    }
    left = set(unit.values())
    while left:
        free = {u for u in left if not any(b == u and a in left for a, b in edges)}
        if not free:
            return False
        left -= free
    return True


def connected(g: Graph, group: set[str]) -> bool:
    """Do values that flow inside the group join all of it, with constants that one of its ops reads and nothing but constants?"""
    inside = [node for node in g.nodes if node.name in group]
    pairs = {(source.name, node.name) for node in inside for source in [e.node for e in node.reads]}
    by_affinity = any(node.affinity is not None for node in g.nodes)
    for a in inside if by_affinity else ():
        if a.reads and all(entry.node.is_constant for entry in a.reads):
            pairs |= {(a.name, b.name) for b in inside if set(a.reads) & set(b.reads)}
    reached = {next(iter(group))}
    while True:
        more = {name for pair in pairs if set(pair) <= group and set(pair) & reached for name in pair}
        if more <= reached:
            return reached == group
        reached |= more


def check_partition_of(g: Graph, made: Graph, unconnected: bool = False) -> None:
    """What holds for every partition of g: nothing cyclic, nothing lost, the same numbers."""
    groups = groups_of(made)
    assert contracted_is_acyclic(g, groups)
    assert unconnected or all(connected(g, group) for group in groups)
    assert sum(map(len, groups)) == len(set().union(*groups))
    check_same(g, made)
    before = str(g)
    assert str(apply_pass(made, "InlineSubgraphs")) == before


def check_same(g: Graph, made: Graph) -> None:
    """The same interface and the same numbers."""
    assert [n.name for n in made.inputs] == [n.name for n in g.inputs]
    assert made.output_names == g.output_names
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal([int(d) for d in n[0].type.shape]).astype(np.float32) for n in g.inputs]  # type: ignore[union-attr]
    for a, b in zip(interpret(g, feeds), interpret(made, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


class Recorder(SubgraphSelector):
    """Says yes to some ops and writes down each call."""

    def __init__(self, log: list[str], wanted: set[str]) -> None:
        self.log = log
        self.wanted = wanted
        log.append("new")

    def select(self, node: Node) -> bool:
        self.log.append(f"select {node.name}")
        return node.op in self.wanted

    def select_input(self, cur: Node, new: Node) -> bool:
        self.log.append(f"input {cur.name} {new.name}")
        return new.op in self.wanted

    def select_output(self, cur: Node, new: Node) -> bool:
        self.log.append(f"output {cur.name} {new.name}")
        return new.op in self.wanted

    def filter(self, candidates: list[Node]) -> list[Node]:
        self.log.append(f"filter {' '.join(node.name for node in candidates)}")
        return candidates

    def reset(self) -> None:
        self.log.append("reset")
