"""Whatever the graph and whatever the selector says: no cycle, nothing lost, the same numbers, the inverse pass gives it back."""

from __future__ import annotations

import itertools
import random
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.graph import Graph, Node
from partita.partition import Plan, SubgraphSelector, plan
from partita.passes import apply_pass
from tests.graphs.drawn import graphs
from tests.graphs.topologies import from_edges

from .making import Property, check_partition_of, contracted_is_acyclic, groups_of

EXAMPLES = settings(max_examples=60, deadline=None)


class Vetoing(SubgraphSelector):
    """Stateless: refuses a fixed, random-looking share of the nodes and edges."""

    stateless = True

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _yes(self, *key: Any) -> bool:
        return random.Random(f"{self.seed}{key}").random() < 0.8

    def select(self, node: Node) -> bool:
        return self._yes(node.name)

    def select_input(self, cur: Node, new: Node) -> bool:
        return self._yes("in", cur.name, new.name)

    def select_output(self, cur: Node, new: Node) -> bool:
        return self._yes("out", cur.name, new.name)


class Moody(SubgraphSelector):
    """Stateful: what it says depends on how often it was asked; its filter drops anything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed

    def select(self, node: Node) -> bool:
        return self.random.random() < 0.8

    def select_input(self, cur: Node, new: Node) -> bool:
        return self.random.random() < 0.7

    select_output = select_input

    def filter(self, candidates: list[Node]) -> list[Node]:
        kept = [node for node in candidates if self.random.random() < 0.7]
        self.random.shuffle(kept)
        return kept

    def reset(self) -> None:
        self.random = random.Random(self.seed + 1)


class VetoingWithFilter(Vetoing):
    def filter(self, candidates: list[Node]) -> list[Node]:
        return [node for node in candidates if self._yes("filter", node.name)]


@EXAMPLES
@given(g=graphs(), growth=st.sampled_from([None, "walk", "largest", "seed", "waves"]))
def test_by_affinity(g: Graph, growth: str | None) -> None:
    if all(node.affinity is None for node in g.nodes):
        return
    result = apply_pass(g, "PartitionGraph", growth=growth)
    check_partition_of(g, result, unconnected=growth == "waves")
    device = {node.name: node.affinity for node in g.nodes}
    assert all(len({device[name] for name in group}) == 1 for group in groups_of(result))
    planned = plan(g, growth=growth)
    assert planned.to_json() == plan(g, growth=growth).to_json()
    assert str(Plan.from_json(planned.to_json()).apply(g)) == str(result)


@EXAMPLES
@given(
    g=graphs(devices=[None]),
    kind=st.sampled_from([Vetoing, VetoingWithFilter]),
    seed=st.integers(0, 99),
    growth=st.sampled_from(["walk", "largest", "seed", "waves"]),
    most=st.sampled_from([None, 1, 2, 5]),
)
def test_stateless_selectors(g: Graph, kind: type[Vetoing], seed: int, growth: str, most: int | None) -> None:
    subject = Property(lambda: kind(seed))
    result = apply_pass(g, "PartitionGraph", subgraph_property=subject, growth=growth, max_nodes=most)
    check_partition_of(g, result, unconnected=growth == "waves")
    assert most is None or all(len(group) <= most for group in groups_of(result))
    if growth != "walk":
        selector = kind(seed)
        assert all(selector.select(g[name]) for group in groups_of(result) for name in group)


@EXAMPLES
@given(g=graphs(devices=[None]), seed=st.integers(0, 99), least=st.integers(1, 3))
def test_stateful_selectors_with_filters(g: Graph, seed: int, least: int) -> None:
    rng = random.Random(seed)
    subject = Property(lambda: Moody(rng.randrange(10**6)), min_subgraph_size=least)
    result = apply_pass(g, "PartitionGraph", subgraph_property=subject)
    check_partition_of(g, result)
    assert all(len(group) >= least for group in groups_of(result))


@EXAMPLES
@given(g=graphs(), seed=st.integers(0, 99), dedup=st.booleans())
def test_several_properties(g: Graph, seed: int, dedup: bool) -> None:
    makers = {"first": lambda: Moody(seed), "second": lambda: Vetoing(seed), "third": lambda: Moody(7)}
    properties = [Property(make, name) for name, make in makers.items()]
    result = apply_pass(g, "PartitionGraph", subgraph_property=properties, dedup_inputs=dedup)
    check_partition_of(g, result)


@EXAMPLES
@given(g=graphs())
def test_every_border_has_a_reason(g: Graph) -> None:
    if all(node.affinity is None for node in g.nodes):
        return
    result = apply_pass(g, "PartitionGraph")
    report = result.attrs["partition_report"]
    home = {name: group.name for group in report.groups for name in group.nodes}
    edges = {
        (source.name, node.name)
        for node in g.nodes
        for source in [*(e.node for e in node.reads), *node.after]
        if not source.is_constant and home.get(source.name) != home.get(node.name)
    }
    assert {(border.producer, border.consumer) for border in report.borders} == edges
    assert all(border.text for border in report.borders)
    assert {out.node for out in report.outside} == {node.name for node in g.nodes if node.is_op} - set(home)
    for row in report.to_dict(paths=True)["borders"]:
        assert (row["rule"] == "cycle") == (row["path"] is not None)


@EXAMPLES
@given(g=graphs(devices=["A", "B"]))
def test_largest_leaves_no_edge_to_contract(g: Graph) -> None:
    result = apply_pass(g, "PartitionGraph", growth="largest")
    groups = groups_of(result)
    home = {name: i for i, group in enumerate(groups) for name in group}
    for node in g.nodes:
        for source in [e.node for e in node.reads]:
            a, b = home.get(source.name), home.get(node.name)
            if a is not None and b is not None and a != b and source.affinity == node.affinity:
                merged = [g for i, g in enumerate(groups) if i not in (a, b)] + [groups[a] | groups[b]]
                assert not contracted_is_acyclic(g, merged)


@pytest.mark.parametrize("growth", ["walk", "largest"])
def test_the_same_on_every_run(growth: str) -> None:
    names = {f"n{i}": [f"n{j}" for j in {i - 1, i // 2} if 0 <= j < i] for i in range(60)}
    texts = set()
    for _ in range(3):
        g = from_edges(names, {name: "AB"[i % 7 == 6] for i, name in enumerate(names)})
        texts.add(plan(g, growth=growth).to_json())
    assert len(texts) == 1


@pytest.mark.parametrize("seed", range(200, 300))
def test_the_path_of_a_cycle_is_a_shortest_one(seed: int) -> None:
    """In the graph with every subgraph contracted, if there is one; else a path of ops and subgraphs at least."""
    rng = random.Random(seed)
    edges = {str(i): [str(j) for j in rng.sample(range(i), min(i, rng.randint(1, 2)))] for i in range(rng.randint(4, 12))}
    devices = {name: rng.choice(["A", "A", "B", None]) for name in edges}
    g = from_edges(edges, {} if seed % 2 == 0 else devices)
    options = {"subgraph_property": Property(lambda: Vetoing(seed))} if seed % 2 == 0 else {}
    report = apply_pass(g, "PartitionGraph", growth="walk", **options).attrs["partition_report"]
    home = {name: group.name for group in report.groups for name in group.nodes}
    ops = {group.name: group.nodes for group in report.groups} | {name: (name,) for name in edges}
    contracted: nx.DiGraph[str] = nx.DiGraph()
    for name, sources in edges.items():
        ends = [(home.get(source, source), home.get(name, name)) for source in sources]
        contracted.add_edges_from((one, other) for one, other in ends if one != other)
    for border in report.borders:
        path = report.cycle_path(border)
        if border.rule != "cycle":
            assert path is None
            continue
        start, goal = home.get(border.producer, border.producer), home.get(border.consumer, border.consumer)
        around = nx.restricted_view(contracted, [], [(start, goal)])
        if nx.has_path(around, start, goal):
            assert path is not None and nx.is_path(around, list(path)) and (path[0], path[-1]) == (start, goal)
            assert len(path) == len(nx.shortest_path(around, start, goal))
        for one, other in itertools.pairwise(path or ()):
            assert any(source in edges[name] for source in ops[one] for name in ops[other])
