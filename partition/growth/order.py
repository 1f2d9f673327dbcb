"""A list with order maintenance under insertion: precedence is one comparison of numbers."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 1 << 24
"""Initial distance between the ranks of neighbours: room for insertions."""

SPREAD_FACTOR = 2 / 1.3
"""Factor by which each larger interval may be fuller before its ranks are spread."""


class OrderList:
    """Items 0..n-1 in a doubly linked list; rank[x] < rank[y] if and only if x is before y.

    An item inserted between two neighbours takes the middle rank. If no number is left,
    the ranks of a neighbourhood are spread evenly (Bender et al., "Two simplified algorithms for maintaining
    order in a list"): O(log n) amortised per insertion. Ranks of unlinked items are meaningless.
    """

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
