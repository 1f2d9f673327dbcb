"""Intervals that say who is below whom."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from partita.partition.growth.forest import earliest_consumers, latest_producers
from tests.graphs.on_integers import graphs
from tests.partition.growth.oracles import neighbours


def ancestors(parent: list[int], v: int) -> set[int]:
    """v and all that it is below."""
    listed = set()
    while v >= 0:
        listed.add(v)
        v = parent[v]
    return listed


@pytest.mark.parametrize("side", [0, 1])
@settings(deadline=None, max_examples=100)
@given(graphs())
def test_below(side, graph) -> None:
    forest = (latest_producers, earliest_consumers)[side](neighbours(graph.preds)[side])
    for v in graph.nodes:
        above = {a for a in graph.nodes if forest.start[a] <= forest.start[v] < forest.stop[a]}
        assert above == ancestors(forest.parent, v)
        siblings = [w for w in graph.nodes if forest.parent[w] == forest.parent[v]]
        assert siblings == sorted(siblings, key=forest.start.__getitem__)
