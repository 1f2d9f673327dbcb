"""The minimum cut of a flow network, by Dinic's algorithm."""

from __future__ import annotations

INFINITE = float("inf")


class FlowNetwork:
    """A network of nodes 0 (the source), 1 (the sink) and others, and its capacities."""

    def __init__(self) -> None:
        self._heads: list[list[int]] = [[], []]
        """By node: the numbers of its arcs; the arc against each is number ^ 1."""
        self._to: list[int] = []
        self._left: list[float] = []
        """The remaining capacity of each arc."""

    def node(self) -> int:
        """A new node."""
        self._heads.append([])
        return len(self._heads) - 1

    def arc(self, start: int, end: int, capacity: float, back: float = 0.0) -> None:
        """Adds an arc, and one against it with the capacity `back`."""
        if capacity or back:
            self._heads[start].append(len(self._to))
            self._heads[end].append(len(self._to) + 1)
            self._to += (end, start)
            self._left += (capacity, back)

    def minimum_cut(self) -> tuple[float, list[bool]]:
        """The capacity of the cut, infinite if there is none, and for each node True if it is on the source's side."""
        total = 0.0
        while True:
            levels = self._levels()
            if levels[1] < 0:
                return total, [level >= 0 for level in levels]
            total += self._blocking_flow(levels)
            if total == INFINITE:
                return total, [level >= 0 for level in levels]

    def _levels(self) -> list[int]:
        """The distance of each node from the source in the residual network; -1 if it is not reached."""
        levels = [-1] * len(self._heads)
        levels[0] = 0
        layer = [0]
        heads, to, left = self._heads, self._to, self._left
        while layer:
            reached = []
            for node in layer:
                for arc in heads[node]:
                    end = to[arc]
                    if left[arc] > 0 and levels[end] < 0:
                        levels[end] = levels[node] + 1
                        reached.append(end)
            layer = reached
        return levels

    def _blocking_flow(self, levels: list[int]) -> float:
        """Saturates all shortest paths; returns the flow that was added."""
        heads, to, left = self._heads, self._to, self._left
        following = [0] * len(heads)
        total, path = 0.0, list[int]()
        node = 0
        while True:
            if node == 1:
                pushed = min([left[arc] for arc in path])
                if pushed == INFINITE:
                    return INFINITE
                total += pushed
                first = len(path)
                for i in range(len(path) - 1, -1, -1):
                    arc = path[i]
                    left[arc] -= pushed
                    left[arc ^ 1] += pushed
                    if not left[arc]:
                        first = i
                node = to[path[first] ^ 1]
                del path[first:]
                continue
            arcs, level = heads[node], levels[node] + 1
            i = following[node]
            while i < len(arcs) and not (left[arcs[i]] > 0 and levels[to[arcs[i]]] == level):
                i += 1
            following[node] = i
            if i < len(arcs):
                path.append(arcs[i])
                node = to[arcs[i]]
            elif path:
                node = to[path.pop() ^ 1]
                following[node] += 1
            else:
                return total
