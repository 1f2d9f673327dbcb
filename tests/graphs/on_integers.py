"""Random graphs on integers, and what else the growth tests draw."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import attrs
from hypothesis import strategies as st

from tests.partition.growth.oracles import acyclic


@attrs.frozen
class Drawn:
    """One random graph."""

    preds: list[list[int]]
    color: list[int | None]

    @property
    def nodes(self) -> range:
        return range(len(self.preds))


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 24, devices: int = 3, span: int = 9) -> Drawn:
    """Each node reads up to three of the `span` nodes before it, some of them twice; some nodes belong to no device."""
    color = st.one_of(st.none(), st.integers(0, draw(st.integers(0, devices - 1))))
    node = st.tuples(st.lists(st.integers(1, span), max_size=3), color)
    nodes = draw(st.lists(node, min_size=1, max_size=max_nodes))
    preds = [[v - back for back in backs if back <= v] for v, (backs, _) in enumerate(nodes)]
    return Drawn(preds, [c for _, c in nodes])


@st.composite
def control_edges(draw: st.DrawFn, graph: Drawn) -> frozenset[tuple[int, int]]:
    """Some of the edges, which stand for control dependencies."""
    edges = [(u, v) for v, producers in enumerate(graph.preds) for u in producers]
    return frozenset(draw(st.sets(st.sampled_from(edges)))) if edges else frozenset()


@st.composite
def fixed_groups(draw: st.DrawFn, graph: Drawn) -> list[list[int]]:
    """A few disjoint groups, acyclic together; they may be unconnected."""
    groups: list[list[int]] = []
    for nodes in draw(st.lists(st.sets(st.sampled_from(graph.nodes), min_size=1, max_size=4), max_size=3)):
        left = sorted(nodes - {v for group in groups for v in group})
        if left and acyclic(graph.preds, [*groups, left]):
            groups.append(left)
    return groups


def veto(salt: int, share: float = 0.15) -> Callable[..., bool]:
    """A yes or no that depends on its arguments alone; no to about `share` of them, to none for salt 0."""
    return lambda *args: not salt or zlib.crc32(repr((salt, args)).encode()) >= share * 2**32


def random_graph(rng: random.Random, max_nodes: int) -> Drawn:
    """For corpora: many devices or one with hosts, short edges or long ones, devices in clumps or not."""
    count, devices, fan = rng.randint(3, max_nodes), rng.choice([1, 2, 2, 3]), rng.choice([1, 2, 2, 3])
    span, clumped = rng.choice([3, 6, 12, 40, 100]), rng.random() < 0.33
    hosts = 0.35 if devices == 1 else rng.choice([0, 0, 0.3])
    preds: list[list[int]] = [[]]
    color: list[int | None] = [0]
    for v in range(1, count):
        preds.append([rng.randrange(max(0, v - span), v) for _ in range(rng.randint(1, fan))])
        follows = clumped and rng.random() < 0.6
        other = None if rng.random() < hosts else rng.randrange(devices)
        color.append(color[rng.choice(preds[v])] if follows else other)
    return Drawn(preds, color)
