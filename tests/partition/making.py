"""Properties and selectors for the tests of partitioning, and what every partition has to satisfy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from partita.graph import Graph, Node
from partita.graph.interpret import interpret
from partita.partition import PatternProperty, SubgraphProperty, SubgraphSelector
from partita.partition.selector import ContainOpSelector
from partita.passes import apply_pass


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


def groups_of(g: Graph) -> list[set[str]]:
    """The subgraphs that the report names."""
    return [set(group.nodes) for group in g.attrs["partition_report"].groups]


def contracted_is_acyclic(g: Graph, groups: Sequence[Iterable[str]]) -> bool:
    """Whether groups close no cycle, by definition: with each group as one node, all nodes can be taken in order."""
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


def check_partition_of(g: Graph, partitioned: Graph, unconnected: bool = False) -> None:
    """What holds for every partition of g: nothing cyclic, nothing lost, the same numbers."""
    groups = groups_of(partitioned)
    assert contracted_is_acyclic(g, groups)
    assert unconnected or all(connected(g, group) for group in groups)
    assert sum(map(len, groups)) == len(set().union(*groups))
    check_same(g, partitioned)
    before = str(g)
    assert str(apply_pass(partitioned, "InlineSubgraphs")) == before


def check_same(g: Graph, partitioned: Graph) -> None:
    """Check that both graphs have the same interface and give the same numbers."""
    assert [n.name for n in partitioned.inputs] == [n.name for n in g.inputs]
    assert partitioned.output_names == g.output_names
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal([int(d) for d in n[0].type.shape]).astype(np.float32) for n in g.inputs]  # type: ignore[union-attr]
    for a, b in zip(interpret(g, feeds), interpret(partitioned, feeds), strict=True):
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
