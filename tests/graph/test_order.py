"""Topological order: among the ready nodes, the one with the lowest place comes first."""

from __future__ import annotations

import random

import numpy as np
import pytest

from partita.graph import GraphError, Node, NodeEntry
from partita.graph.order import EdgeArrays, topological


def drawn(rng: random.Random) -> list[Node]:
    """Nodes whose places agree with the data flow, in part or not at all, by value or by control."""
    count = rng.randint(1, 12)
    places = sorted(range(count), key=lambda v: v + rng.choice([0, 0, 3, 12]) * rng.random())
    nodes: list[Node] = []
    for v in range(count):
        read = [NodeEntry(rng.choice(nodes)) for _ in range(rng.randint(0, 3))] if nodes else []
        after = tuple(rng.sample(nodes, 1)) if nodes and rng.random() < 0.2 else ()
        nodes.append(Node(f"n{v}", "Max", tuple(read), output_names=(f"v{v}",), after=after, place=places[v]))
    return nodes


def by_definition(nodes: list[Node]) -> list[Node]:
    done: list[Node] = []
    while len(done) < len(nodes):
        ready = [n for n in nodes if n not in done and all(s in done for s in (*(e.node for e in n.inputs if e), *n.after))]
        done.append(min(ready, key=lambda node: node.place))
    return done


def test_the_lowest_place_comes_first() -> None:
    rng = random.Random(1)
    for _ in range(300):
        nodes = drawn(rng)
        expected = by_definition(nodes)
        rng.shuffle(nodes)
        assert topological(nodes) == tuple(expected)


def test_a_cycle_is_named() -> None:
    a = Node("a", "Relu", output_names=("x",))
    b = Node("b", "Relu", (NodeEntry(a),), output_names=("y",))
    closed = a.evolve()
    object.__setattr__(closed, "inputs", (NodeEntry(b),))
    object.__setattr__(b, "inputs", (NodeEntry(closed),))
    with pytest.raises(GraphError, match=r"node 'a' \(Relu\): the node depends on itself through a cycle"):
        topological([closed, b])


def test_edges_as_arrays() -> None:
    edges = EdgeArrays.of([[], [0], [], [1, 0, 1], [2]])
    assert list(edges.pairs()) == [(0, 1), (1, 3), (0, 3), (1, 3), (2, 4)]
    assert edges.roots().tolist() == [0, 0, 2, 0, 2]
    some = edges.where(edges.producers == 1)
    assert (some.count, len(some), some.roots().tolist()) == (5, 2, [0, 1, 2, 1, 4])


def test_a_root_is_reached_over_a_long_chain() -> None:
    assert not np.any(EdgeArrays.of([[], *([v] for v in range(999))]).roots())
