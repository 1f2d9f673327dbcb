"""The cycle that joining two subgraphs would close: a way from one to the other that does not go straight."""

from __future__ import annotations

from collections import deque

from partition.explain import Explanation


class PathFinder:
    """Looks for paths in the graph with every group contracted. Each search is linear; every pair is searched once."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation
        self._readers = explanation.index.consumers()
        self._found: dict[tuple[int, int], tuple[str, ...] | None] = {}

    def unit(self, v: int) -> int:
        """The group that v is in as ~k, or v itself."""
        k = self._explanation.owner[v]
        return v if k < 0 else ~k

    def path(self, u: int, v: int) -> tuple[str, ...] | None:
        """Where both ends of the edge u→v were one, the outside way that leaves and comes back: names of ops and of calls."""
        pair = (self.unit(u), self.unit(v))
        if pair not in self._found:
            self._found[pair] = self._search(*pair)
        return self._found[pair]

    def _search(self, start: int, goal: int) -> tuple[str, ...] | None:
        came_from: dict[int, int] = {}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            for after in self._next(here):
                if after == goal and here != start:
                    return self._names(here, start, came_from, goal)
                if after not in came_from and after not in (start, goal):
                    came_from[after] = here
                    waiting.append(after)
        return None

    def _next(self, unit: int) -> list[int]:
        members = [unit] if unit >= 0 else self._explanation.groups[~unit].members
        return list(dict.fromkeys(self.unit(w) for v in members for w in self._readers[v]))

    def _names(self, here: int, start: int, came_from: dict[int, int], goal: int) -> tuple[str, ...]:
        chain = [goal, here]
        while here != start:
            here = came_from[here]
            chain.append(here)
        explanation = self._explanation
        return tuple(explanation.name(x) if x >= 0 else explanation.groups[~x].name for x in reversed(chain))
