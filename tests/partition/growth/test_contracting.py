"""Edge after edge contracted: which are asked, in which order, and which of them again."""

from __future__ import annotations

import random
from collections.abc import Sequence

import networkx
import numpy as np
import pytest

from partita.graph.order import EdgeArrays
from partita.partition.growth.contract import contract_all
from partita.partition.growth.label_contraction import components
from partita.partition.growth.quotient import Quotient
from tests.partition.growth.oracles import neighbours

Edge = tuple[int, int]


class Asked(Quotient):
    """Notes each question by the first nodes of the groups, and whether the answer was no."""

    __slots__ = ("questions",)

    def merge(self, members: Sequence[int]) -> list[int] | None:
        first = sorted(next(x for x in range(len(self.rep)) if self.find(x) == name) for name in members)
        path = super().merge(members)
        self.questions.append("+".join(map(str, first)) + ("" if path is None else " no"))
        return path


def contracted(preds: list[list[int]], color: list[int | None], edges: list[Edge]) -> tuple[list[list[int]], list[str]]:
    """The groups, and what was asked."""
    ins, outs = neighbours(preds)
    quotient = Asked(outs, ins)
    quotient.questions = []
    contract_all(quotient, color, edges)
    groups: dict[int, list[int]] = {}
    for x in range(len(preds)):
        groups.setdefault(quotient.find(x), []).append(x)
    return sorted(groups.values()), quotient.questions


TRIANGLE: list[list[int]] = [[], [0], [0, 1]]
LADDER: list[list[int]] = [[], [0], [1], [0, 2]]
"""0 to 3, beside 0 to 1 to 2 to 3."""
CASES: dict[str, tuple[list[list[int]], list[int | None], list[Edge], list[list[int]], list[str]]] = {
    "nothing": (TRIANGLE, [0, 0, 0], [], [[0], [1], [2]], []),
    "a node and itself": (TRIANGLE, [0, 0, 0], [(1, 1)], [[0], [1], [2]], []),
    "an edge twice": (TRIANGLE, [0, 0, 0], [(0, 1), (0, 1)], [[0, 1], [2]], ["0+1"]),
    "what is one already": (TRIANGLE, [0, 0, 0], [(0, 1), (1, 2), (0, 2)], [[0, 1, 2]], ["0+1", "0+2"]),
    "a path through another colour": (TRIANGLE, [0, 1, 0], [(0, 2)], [[0], [1], [2]], ["0+2 no"]),
    "a path through no colour": (TRIANGLE, [0, None, 0], [(0, 2)], [[0], [1], [2]], ["0+2 no"]),
    "a path through its own": (TRIANGLE, [0, 0, 0], [(0, 2), (0, 1)], [[0, 1, 2]], ["0+2 no", "0+1", "0+2"]),
    "that is merged with the other end": (TRIANGLE, [0, 0, 0], [(0, 2), (1, 2)], [[0, 1, 2]], ["0+2 no", "1+2", "0+1"]),
    "for good, whatever merges": (
        LADDER, [0, 1, 1, 0], [(0, 3), (1, 2), (0, 3)], [[0], [1, 2], [3]], ["0+3 no", "1+2"],
    ),
    "not again before the path is merged with an end": (
        LADDER, [0, 0, 0, 0], [(0, 3), (1, 2), (2, 3)], [[0, 1, 2, 3]], ["0+3 no", "1+2", "1+3", "0+1"],
    ),
    "not again if it never is": (LADDER, [0, 0, 0, 0], [(0, 3), (1, 2)], [[0], [1, 2], [3]], ["0+3 no", "1+2"]),
    "again, and another path is in the way": (
        [[], [0], [0], [0, 1, 2]], [0, 0, 1, 0], [(0, 3), (0, 1), (1, 3)], [[0, 1], [2], [3]], ["0+3 no", "0+1", "0+3 no"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_edges_are_asked_again_where_the_answer_may_have_changed(name: str) -> None:
    preds, color, edges, groups, questions = CASES[name]
    assert contracted(preds, color, edges) == (groups, questions)


@pytest.mark.parametrize("seed", range(60))
def test_components_are_named_by_their_first_nodes(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 40)
    preds = [[rng.randrange(v) for _ in range(rng.choice((0, 1, 1, 5)))] if v else [] for v in range(count)]
    label = np.array([rng.randrange(rng.choice((1, 3))) for _ in preds])
    graph = networkx.Graph((u, v) for v, producers in enumerate(preds) for u in producers if label[u] == label[v])
    graph.add_nodes_from(range(count))
    first = {v: min(part) for part in networkx.connected_components(graph) for v in part}
    assert components(EdgeArrays.of(preds), label).tolist() == [first[v] for v in range(count)]
