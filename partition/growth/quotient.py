"""A graph under contraction: merges groups of nodes as long as that closes no cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

CHUNK = 12
"""Edges that each end of a search visits per turn."""

MEMBER = -1
"""In a search's tree: one of the groups to be merged."""

EXHAUSTED = -2
"""Result of a side of a search without remaining edges."""

SMALL_LIST = 64
"""Neighbour lists shorter than this in total are cleaned at every merge, longer ones only by large merges."""


Found = tuple[list[int] | None, list[int], bool]
"""Result of a search: the path or None; the outside groups of the side that was exhausted first; True if it is the forward."""


class Quotient:
    """The groups of a partition, each named by one of its nodes, with a topological order that merges maintain.

    The neighbour lists become stale when groups merge; entries are resolved by `find` (inlined in the
    hot loops). `order.rank` is the rank of each group; a path from a to b stays within their ranks."""

    __slots__ = ("_backward", "_forward", "_member", "_stamp", "order", "pred", "rep", "succ")

    def __init__(
        self,
        succ: list[list[int]],
        pred: list[list[int]],
        order: Sequence[int] | None = None,
        rep: Sequence[int] | None = None,
    ) -> None:
        """The lists are owned and changed. Without `order` the numbers are a topological order; with
        it (and `rep`: node -> name of its group) the lists are those of already contracted groups."""
        count = len(succ)
        self.succ, self.pred = succ, pred
        self.rep = list(range(count)) if rep is None else list(rep)
        self.order = OrderList(count, order)
        self._forward = [0] * count
        self._backward = [0] * count
        self._member = [0] * count
        self._stamp = 0

    def find(self, x: int) -> int:
        """The name of x's group (union-find with path halving)."""
        rep = self.rep
        while rep[x] != x:
            rep[x] = rep[rep[x]]
            x = rep[x]
        return x

    def merge(self, members: Sequence[int]) -> list[int] | None:
        """Contracts these groups (distinct names) into one, unless a path leaves them and returns.

        Returns None if successful, else the outside groups of such a path. The search runs from both ends in
        lockstep, so it costs the smaller of the two sides, within the ranks between lowest and highest member."""
        low, high = self._ends(members)
        found = self._first_turn(low, high) if len(members) == 2 else None
        path, settled, forward = found or self._search(members, low, high)
        if path is None:
            self._contract(members, high if forward else low, settled, forward)
        return path

    def closes_cycle(self, members: Sequence[int]) -> bool:
        """True if merging these groups would close a cycle: the search of `merge` without the contraction."""
        low, high = self._ends(members)
        return self._search(members, low, high)[0] is not None

    def _ends(self, members: Sequence[int]) -> tuple[int, int]:
        rank = self.order.rank
        if len(members) == 2:
            a, b = members
            return (a, b) if rank[a] < rank[b] else (b, a)
        return min(members, key=rank.__getitem__), max(members, key=rank.__getitem__)

    def _first_turn(self, low: int, high: int) -> Found | None:
        """The search's result for two members in the first turn of its forward side; None if it goes on. Most end here."""
        self._stamp += 1
        rep, rank, succ, mark, stamp = self.rep, self.order.rank, self.succ, self._forward, self._stamp
        limit = rank[high]
        met = [low]
        parents: dict[int, int] = {}
        left = CHUNK
        for x in met:  # grows during iteration
            for s in succ[x]:
                while rep[s] != s:
                    rep[s] = rep[rep[s]]
                    s = rep[s]
                if s == high:
                    if x != low:
                        return _chain(x, parents), [], True
                elif rank[s] < limit and mark[s] != stamp and s != low:
                    mark[s] = stamp
                    parents[s] = x if x != low else MEMBER
                    met.append(s)
                left -= 1
                if not left:
                    return None
        return None, met[1:], True

    def _search(self, members: Sequence[int], low: int, high: int) -> Found:
        """Searches for a path between members through the outside."""
        self._stamp += 1
        member, stamp = self._member, self._stamp
        for x in members:
            member[x] = stamp
        down = [x for x in members if x != high]  # the starts of paths, then the outside groups that were met
        up = [x for x in members if x != low]
        starts = len(down)
        parents: dict[int, int] = {}
        children: dict[int, int] = {}
        ranks = (self.order.rank[low], self.order.rank[high])
        forward = self._sweep(down, self.succ, self._forward, self._backward, parents, ranks)
        backward = self._sweep(up, self.pred, self._backward, self._forward, children, ranks)
        while True:
            met = next(forward, EXHAUSTED)
            if met == EXHAUSTED:
                return None, down[starts:], True
            if met >= 0:
                break
            met = next(backward, EXHAUSTED)
            if met == EXHAUSTED:
                return None, up[starts:], False
            if met >= 0:
                break
        return _chain(met, parents) + _chain(met, children)[1:], [], True

    def _sweep(
        self, queue: list[int], edges: list[list[int]], mark: list[int], other: list[int], came_from: dict[int, int],
        ranks: tuple[int, int],
    ) -> Iterator[int]:
        """One end of the search, breadth first: yields MEMBER after each CHUNK of edges, and, when a path
        from member to member is complete, the outside group where its two halves meet."""
        rep, rank, member, stamp = self.rep, self.order.rank, self._member, self._stamp
        lowest, highest = ranks
        starts = len(queue)
        left = CHUNK
        for done, x in enumerate(queue):  # the queue grows during iteration
            outside = done >= starts
            for s in edges[x]:
                while rep[s] != s:
                    rep[s] = rep[rep[s]]
                    s = rep[s]
                if member[s] == stamp:
                    if outside:
                        yield x
                elif lowest < rank[s] < highest and mark[s] != stamp:
                    mark[s] = stamp
                    came_from[s] = x if outside else MEMBER
                    if other[s] == stamp:
                        yield s
                    queue.append(s)
                left -= 1
                if not left:
                    yield MEMBER
                    left = CHUNK

    def _contract(self, members: Sequence[int], at: int, settled: list[int], forward: bool) -> None:
        """Merges at the position of `at`. The outside groups of the exhausted side move across the merged one:
        those reachable from the members go after it, or those that reach them before it."""
        rep, succ, pred, order = self.rep, self.succ, self.pred, self.order
        degrees = [len(succ[x]) + len(pred[x]) for x in members]
        into = members[degrees.index(max(degrees))]
        for x in members:
            if x != at:
                order.unlink(x)
        if at != into:
            order.replace(at, into)
        if settled:
            settled.sort(key=order.rank.__getitem__)
            for x in settled:
                order.unlink(x)
            before = into if forward else order.preceding[into]
            for x in reversed(settled):
                order.insert_after(before, x)
        consumers, producers = succ[into], pred[into]
        for x in members:
            if x != into:
                rep[x] = into
                consumers += succ[x]
                producers += pred[x]
                succ[x] = pred[x] = []
        if len(members) > 2 or len(consumers) + len(producers) < SMALL_LIST:
            for neighbours in (succ, pred):
                known = {into: None}
                for s in neighbours[into]:
                    while rep[s] != s:
                        rep[s] = rep[rep[s]]
                        s = rep[s]
                    known[s] = None
                del known[into]
                neighbours[into] = list(known)


def _chain(x: int, came_from: dict[int, int]) -> list[int]:
    """The path of a search to x, from x back to the members."""
    chain = []
    while x != MEMBER:
        chain.append(x)
        x = came_from.get(x, MEMBER)
    return chain


GAP = 1 << 24
"""Initial distance between the ranks of neighbours: room for insertions."""

SPREAD_FACTOR = 2 / 1.3
"""Factor by which each larger interval may be fuller before its ranks are spread."""


class OrderList:
    """Items 0..n-1 in a doubly linked list; rank[x] < rank[y] if and only if x is before y.

    An item inserted between two neighbours takes the middle rank. If no number is left,
    the ranks of a neighbourhood are spread evenly (Bender et al., "Two simplified algorithms for maintaining
    order in a list"): O(log n) amortised per insertion. Ranks of unlinked items are meaningless."""

    __slots__ = ("end", "following", "preceding", "rank")

    def __init__(self, length: int, order: Sequence[int] | None = None) -> None:
        """`order` lists the initial items; by default all of them by number."""
        self.end = length
        """The sentinel that closes the circle: it follows the last item and precedes the first."""
        if order is None:
            self.rank = list(range(GAP, GAP * (length + 1), GAP))
            self.following = [*range(1, length + 1), 0]
            self.preceding = [length, *range(length)]
            return
        self.rank = [0] * length
        self.following = [0] * (length + 1)
        self.preceding = [0] * (length + 1)
        before = length
        for position, x in enumerate(order):
            self.rank[x] = GAP * (position + 1)
            self.following[before] = x
            self.preceding[x] = before
            before = x
        self.following[before] = length
        self.preceding[length] = before

    def unlink(self, x: int) -> None:
        before, after = self.preceding[x], self.following[x]
        self.following[before] = after
        self.preceding[after] = before

    def replace(self, old: int, new: int) -> None:
        """Puts `new`, which is not in the list, in place of `old`."""
        before, after = self.preceding[old], self.following[old]
        self.preceding[new], self.following[new] = before, after
        self.following[before] = self.preceding[after] = new
        self.rank[new] = self.rank[old]

    def insert_after(self, before: int, x: int) -> None:
        """Inserts `x`, which is not in the list, after `before` (the sentinel for the front)."""
        end, rank = self.end, self.rank
        after = self.following[before]
        while True:
            low = rank[before] if before != end else 0
            high = rank[after] if after != end else low + 2 * GAP
            if high - low >= 2:
                break
            self._spread(before if before != end else after)
        rank[x] = (low + high) // 2
        self.preceding[x], self.following[x] = before, after
        self.following[before] = self.preceding[after] = x

    def _spread(self, x: int) -> None:
        """Renumbers the smallest aligned interval around `x` that is empty enough."""
        rank, following, preceding, end = self.rank, self.following, self.preceding, self.end
        left = right = x
        count, bits, capacity = 1, 1, 1.0
        while True:
            base = rank[x] >> bits << bits
            top = base + (1 << bits)
            capacity *= SPREAD_FACTOR
            while preceding[left] != end and rank[preceding[left]] >= base:
                left = preceding[left]
                count += 1
            while following[right] != end and rank[following[right]] < top:
                right = following[right]
                count += 1
            if count < capacity and (1 << bits) > 4 * count:
                break
            bits += 1
        step = (1 << bits) // (count + 1)
        number = base
        while True:
            number += step
            rank[left] = number
            if left == right:
                return
            left = following[left]
