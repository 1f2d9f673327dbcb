"""Observers of growth: the report, and a notebook that shows it step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class WalkObserver:
    """Override the events of interest; by default nothing happens. Nodes are numbers.

    `direction` is "input" if the walk went from `cur` to one of its producers, "output" if to a consumer."""

    def unselected(self, node: int) -> None:
        """The selector refused to start a subgraph at `node`."""

    def started(self, seed: int) -> None:
        """A growth begins at `seed` (accepted by its selector)."""

    def joined(self, cur: int, new: int, direction: str) -> None:
        """The callback accepted `new`."""

    def refused(self, cur: int, new: int, direction: str) -> None:
        """The callback refused `new`."""

    def passed_over(self, cur: int, new: int, direction: str, closed: int) -> None:
        """`new` was not offered: a path between it and the node `closed` would close a cycle."""

    def left_unexpanded(self, node: int, closed: int) -> None:
        """`node` joined, but `closed` reaches it, so a walk that is out of patience does not visit its neighbours."""

    def dropped(self, seed: int, nodes: Sequence[int]) -> None:
        """The group closed a cycle and loses these nodes; growth runs again without them."""

    def filtered(self, seed: int, nodes: Sequence[int]) -> None:
        """`filter` removed these nodes."""

    def cut(self, seed: int, nodes: Sequence[int]) -> None:
        """A part of the nodes that `filter` kept closed a cycle; `seed` is its first node, and it loses these."""

    def finished(self, seed: int, groups: Sequence[Sequence[int]]) -> None:
        """The growth from `seed` ended with these groups: none if `filter` kept nothing."""


class BothObservers(WalkObserver):
    """An observer that forwards everything to two others."""

    def __init__(self, first: WalkObserver, second: WalkObserver) -> None:
        for event in [name for name in vars(WalkObserver) if not name.startswith("_")]:
            setattr(self, event, _both(getattr(first, event), getattr(second, event)))


def _both(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    def forward(*event: object) -> None:
        first(*event)
        second(*event)

    return forward


class SeedObserver:
    """Override the events of interest of growth "seed"; by default nothing happens."""

    def rooted(self, root: int) -> None:
        """A candidate begins at `root`."""

    def merged(self, node: int) -> None:
        """`node` joined the candidate."""

    def rejected(self, node: int) -> None:
        """`node` may not join and is rejected from now on."""

    def rolled_back(self, node: int) -> None:
        """A path leaves the candidate and returns through a rejected node: `node`, the last that joined, is rejected."""

    def grown(self, members: Sequence[int]) -> None:
        """The candidate is complete."""

    def chosen(self, members: Sequence[int]) -> None:
        """The largest candidate became a subgraph."""
