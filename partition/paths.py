"""The cycle that joining two subgraphs would close: an indirect path from one to the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from partita.partition.explain import Explanation


class PathFinder:
    """Searches paths in the graph with every group contracted. Each search is linear; every pair is searched once."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation
        self._readers = explanation.index.consumers()
        self._found: dict[tuple[int, int], tuple[str, ...] | None] = {}

    def path(self, u: int, v: int) -> tuple[str, ...] | None:
        """The path through outside nodes that would leave and re-enter the two ends of the edge u→v, if they were one subgraph:
        names of ops and calls.
        """
        owner = self._explanation.owner
        start, goal = (x if owner[x] < 0 else ~owner[x] for x in (u, v))
        if (start, goal) not in self._found:
            self._found[start, goal] = self._search(start, goal, owner)
        return self._found[start, goal]

    def path_between(self, a: int, b: int) -> tuple[str, ...] | None:
        """The path from one op to the other, in either direction, with their subgraphs dissolved."""
        whole = self._explanation.owner
        owner = [-1 if k in (whole[a], whole[b]) else k for k in whole]
        forth = self._search(a, b, owner, straight=True)
        return forth if forth is not None else self._search(b, a, owner, straight=True)

    def _search(self, start: int, goal: int, owner: Sequence[int], straight: bool = False) -> tuple[str, ...] | None:
        """The shortest path; it has more than one edge, unless it may be `straight`."""
        came_from: dict[int, int] = {}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            for after in self._next(here, owner):
                if after == goal and (straight or here != start):
                    return self._names(here, start, came_from, goal)
                if after not in came_from and after not in (start, goal):
                    came_from[after] = here
                    waiting.append(after)
        return None

    def _next(self, unit: int, owner: Sequence[int]) -> list[int]:
        members = [unit] if unit >= 0 else self._explanation.groups[~unit].members
        readers = dict.fromkeys(w for v in members for w in self._readers[v])
        return list(dict.fromkeys(w if owner[w] < 0 else ~owner[w] for w in readers))

    def _names(self, here: int, start: int, came_from: dict[int, int], goal: int) -> tuple[str, ...]:
        chain = [goal, here]
        while here != start:
            here = came_from[here]
            chain.append(here)
        explanation = self._explanation
        return tuple(explanation.name(x) if x >= 0 else explanation.groups[~x].name for x in reversed(chain))
