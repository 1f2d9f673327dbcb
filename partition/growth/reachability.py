"""Reachability from a growing set of sources, which keeps a walk from closing a cycle."""

from __future__ import annotations

import heapq
from bisect import bisect_right

from partita.partition.growth.forest import Forest
from partita.partition.growth.quotient import CHUNK, Quotient

HIGHEST = 1 << 60


class Beyond:
    """Tests whether a path leads from a source to a group (sign +1), or from a group to a source (sign -1).

    Exact, and queried while sources are added. Groups beyond the sources are marked from the sources on, lazily and
    in rank order; marks are kept until `clear`. A query is answered, in this order: by the mark; by rank,
    if everything up to the group is marked; by the static forest (which can only confirm); else by a search from
    the group against the direction, in lockstep with the marking, so that it costs the cheaper of the two."""

    __slots__ = (
        "_against", "_along", "_at", "_epoch", "_heap", "_intervals", "_lowest", "_marked", "_met", "_no",
        "_open", "_origin", "_position", "_sign", "_source", "_stamp", "_start", "_stop", "_whose",
        "_whose_origin", "closed_by", "quotient",
    )

    def __init__(self, quotient: Quotient, sign: int, forest: Forest) -> None:
        """`forest` is that of the graph's nodes, in which nodes below a source are beyond it."""
        count = len(quotient.rep)
        self.quotient = quotient
        self._sign = sign
        self._along, self._against = (quotient.succ, quotient.pred)[::sign]
        self._start, self._stop = forest.start, forest.stop
        self._marked = [0] * count  # == _stamp: known to be beyond a source
        self._origin = [0] * count  # a source that a marked group is beyond
        self._source = [0] * count  # == _stamp: is a source
        self._met = [0] * count  # the node by which a source was met
        self._no = [0] * count  # == _epoch: known not to be beyond a source
        self._stamp = self._epoch = 0
        self.closed_by = -1
        """After a positive answer, the node of a source that the group is beyond."""
        self.clear()

    def clear(self) -> None:
        """Removes all sources."""
        self._stamp += 1
        self._epoch += 1
        self._heap: list[tuple[int, int]] = []  # (rank, group) from which marking continues
        self._lowest = HIGHEST  # rank of the first source
        self._intervals: list[tuple[int, int, int]] = []  # (start, stop, source) below sources, disjoint, sorted
        self._open: list[int] = []  # neighbours that are being marked ...
        self._position = 0  # ... from here on ...
        self._whose = self._whose_origin = -1  # ... of this group ...
        self._at = 0  # ... of this rank

    def add(self, group: int, node: int) -> None:
        """Makes `group` a source; `node` is the member by which it was met."""
        if self._source[group] != self._stamp:
            self._source[group] = self._stamp
            self._met[group] = node
            self._epoch += 1  # a group that is not beyond the old sources may be beyond the new one
            rank = self._sign * self.quotient.order.rank[group]
            if rank < self._lowest:
                self._lowest = rank
            if self._marked[group] != self._stamp:
                heapq.heappush(self._heap, (rank, group))
        start, stop = self._start[node], self._stop[node]
        intervals = self._intervals
        i = bisect_right(intervals, (start, HIGHEST))
        if i and intervals[i - 1][1] >= stop:
            return
        j = i
        while j < len(intervals) and intervals[j][0] < stop:
            j += 1
        intervals[i:j] = [(start, stop, node)]

    def is_source(self, group: int) -> bool:
        return self._source[group] == self._stamp

    def has(self, group: int, node: int) -> bool:
        """True if `group`, of which `node` is a member, is beyond a source."""
        if self._marked[group] == self._stamp:
            self.closed_by = self._met[self._origin[group]]
            return True
        rank = self._sign * self.quotient.order.rank[group]
        if rank <= self._lowest:
            return False
        if self._all_marked_before(rank):
            return False
        i = bisect_right(self._intervals, (self._start[node], HIGHEST))
        if i and self._start[node] < self._intervals[i - 1][1] and self._source[group] != self._stamp:
            self.closed_by = self._intervals[i - 1][2]
            return True
        if self._no[group] == self._epoch:
            return False
        return self._search(group, rank)

    def _all_marked_before(self, rank: int) -> bool:
        heap = self._heap
        return (not heap or heap[0][0] >= rank) and (self._position == len(self._open) or self._at >= rank)

    def _search(self, group: int, rank: int) -> bool:
        """Searches from both ends, CHUNK edges at a time."""
        ranks, rep = self.quotient.order.rank, self.quotient.rep
        marked, source, no, against = self._marked, self._source, self._no, self._against
        stamp, epoch, sign, lowest = self._stamp, self._epoch, self._sign, self._lowest
        no[group] = epoch
        seen = [group]
        left = CHUNK
        if self._mark_on(group, rank, seen):
            return marked[group] == stamp
        for x in seen:  # grows during iteration; all of it stays unmarked, else the answer is yes
            for s in against[x]:
                while rep[s] != s:
                    rep[s] = rep[rep[s]]
                    s = rep[s]
                if source[s] == stamp or marked[s] == stamp:
                    if s != x:
                        self._mark_beyond(group, rank, s, seen)
                        return True
                elif no[s] != epoch and sign * ranks[s] > lowest:
                    no[s] = epoch
                    seen.append(s)
                left -= 1
                if not left:
                    left = CHUNK
                    if self._mark_on(group, rank, seen):
                        return marked[group] == stamp
        return False

    def _mark_on(self, group: int, rank: int, seen: list[int]) -> bool:
        """Marks along CHUNK more edges. -> True once decided: everything before `rank`, or `group`, is marked."""
        ranks, rep, sign = self.quotient.order.rank, self.quotient.rep, self._sign
        marked, source, origin, stamp, heap = self._marked, self._source, self._origin, self._stamp, self._heap
        edges, position, whose, first = self._open, self._position, self._whose, self._whose_origin
        left = CHUNK
        decided = False
        while left:
            left -= 1
            if position == len(edges):
                if not heap or heap[0][0] >= rank:
                    decided = True
                    break
                self._at, whose = heapq.heappop(heap)
                first = whose if source[whose] == stamp else origin[whose]
                edges = self._along[whose]
                position = 0
                continue
            s = edges[position]
            position += 1
            while rep[s] != s:
                rep[s] = rep[rep[s]]
                s = rep[s]
            if marked[s] != stamp and s != whose:
                marked[s] = stamp
                origin[s] = first
                if source[s] != stamp:
                    heapq.heappush(heap, (sign * ranks[s], s))
                if s == group:
                    self.closed_by = self._met[first]
                    self._forget(seen)
                    decided = True
                    break
        self._open, self._position, self._whose, self._whose_origin = edges, position, whose, first
        return decided

    def _mark_beyond(self, group: int, rank: int, by: int, seen: list[int]) -> None:
        """Marks `group` as beyond `by`, which is a source or marked."""
        self._forget(seen)
        first = by if self._source[by] == self._stamp else self._origin[by]
        self._marked[group] = self._stamp
        self._origin[group] = first
        self.closed_by = self._met[first]
        heapq.heappush(self._heap, (rank, group))

    def _forget(self, seen: list[int]) -> None:
        """Removes the note that these groups are not beyond the sources."""
        for x in seen:
            self._no[x] = 0
