"""What a walk tells those who watch it: the report, and a notebook that goes step by step."""

from __future__ import annotations

from collections.abc import Sequence


class WalkObserver:
    """Override what you want to hear about; by default nothing happens. Nodes are numbers.

    `direction` is "input" where the walk went from `cur` to one of its producers, "output" where to a consumer.
    """

    def started(self, seed: int) -> None:
        """A growth begins at `seed` (its selector said yes)."""

    def joined(self, cur: int, new: int, direction: str) -> None:
        """The callback said yes to `new`."""

    def refused(self, cur: int, new: int, direction: str) -> None:
        """The callback said no to `new`."""

    def passed_over(self, cur: int, new: int, direction: str, closed: int) -> None:
        """`new` was not offered, since a path between it and the node `closed` would close a cycle."""

    def left_unexpanded(self, node: int, closed: int) -> None:
        """`node` joined, but `closed` reaches it, so a walk whose patience is at an end asks for no neighbours of it."""

    def dropped(self, seed: int, nodes: Sequence[int]) -> None:
        """The grown set closed a cycle; it loses these nodes, and growth runs again without them."""

    def filtered(self, seed: int, nodes: Sequence[int]) -> None:
        """`filter` removed these nodes."""

    def cut(self, seed: int, nodes: Sequence[int]) -> None:
        """A part of what `filter` kept closed a cycle; `seed` is its first node, and it loses these."""

    def finished(self, seed: int, groups: Sequence[Sequence[int]]) -> None:
        """The growth from `seed` is over and left these groups: none where `filter` kept nothing."""
