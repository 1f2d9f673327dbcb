"""The record of one property's choice, from which every border can be explained."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import attrs

from partita.partition.growth import Repair, WalkObserver
from partita.partition.matcher import Missed
from partita.partition.pattern import Pattern
from partita.partition.selector import SubgraphSelector

GIVEN = "given"
"""The growth, in the evidence, of groups that the user named or of the user's own growth."""

Edge = tuple[int, int]
"""Producer and consumer."""


@attrs.define(slots=True, eq=False)
class Evidence:
    """One property's run. Nodes are numbers of the op index."""

    property: str
    """Its name."""
    growth: str
    """The growth; "pattern" if a pattern was matched."""
    asks: str
    """The selector or the pattern, in words."""
    labels: Sequence[Hashable | None] | None = None
    """The label of each node, if the selector's answers are "equal labels"; None for unsupported nodes."""
    by_affinity: bool = False
    """True if the labels are devices."""
    unselected: set[int] = attrs.Factory(set)
    """Nodes at which `select` refused to start (for a stateless selector: nodes that it refused)."""
    refused: dict[Edge, str] = attrs.Factory(dict)
    """Edges that a callback refused to follow, and the callback."""
    passed: dict[Edge, tuple[int, int]] = attrs.Factory(dict)
    """Edges over which a node was not offered: that node, and the closed node through which it would close a cycle."""
    dropped: dict[int, int] = attrs.Factory(dict)
    """Nodes that a growth dropped because they closed a cycle, and its seed."""
    filtered: dict[int, int] = attrs.Factory(dict)
    """Nodes that `filter` removed, and the seed of the growth."""
    unexpanded: dict[int, int] = attrs.Factory(dict)
    """Nodes of a walk with hubs whose neighbours were not visited, and the closed node that reaches them."""
    missed: dict[int, Missed] = attrs.Factory(dict)
    """The matches of the pattern that were not taken, by anchor."""
    cut: dict[int, str] = attrs.Factory(dict)
    """Nodes of subgraphs that were cut, and the reason in words."""
    limited: dict[int, str] = attrs.Factory(dict)
    """Nodes of subgraphs that a limit dropped, and the limit in words."""
    declined: dict[int, str] = attrs.Factory(dict)
    """Nodes of subgraphs that a hook declined, and the hook."""
    notes: list[str] = attrs.Factory(list)
    """Further notes for the report."""
    selector: SubgraphSelector | Pattern | None = None
    """The selector or pattern that chose the groups; for a walk the first selector."""
    selectors: dict[int, SubgraphSelector] = attrs.Factory(dict)
    """The selector of each group in a walk, by the group's first node."""
    repairs: list[Repair] = attrs.Factory(list)
    """Subgraphs of growth "seed" that were split to avoid a cycle with another."""

    def selector_of(self, group: Sequence[int]) -> SubgraphSelector | Pattern | None:
        """The selector or pattern that chose the group."""
        return self.selectors.get(group[0], self.selector)


class EvidenceOfWalk(WalkObserver):
    """Records the events of a walk."""

    def __init__(self, evidence: Evidence, latest: Callable[[], SubgraphSelector]) -> None:
        """`latest`: returns the selector of the current growth."""
        self._evidence = evidence
        self._latest = latest

    def finished(self, seed: int, groups: Sequence[Sequence[int]]) -> None:
        self._evidence.selectors.update((group[0], self._latest()) for group in groups)

    def refused(self, cur: int, new: int, direction: str) -> None:
        if direction == "input":
            self._evidence.refused[new, cur] = "select_input"
        else:
            self._evidence.refused[cur, new] = "select_output"

    def passed_over(self, cur: int, new: int, direction: str, closed: int) -> None:
        self._evidence.passed[(new, cur) if direction == "input" else (cur, new)] = new, closed

    def left_unexpanded(self, node: int, closed: int) -> None:
        self._evidence.unexpanded[node] = closed

    def dropped(self, seed: int, nodes: Sequence[int]) -> None:
        self._evidence.dropped.update(dict.fromkeys(nodes, seed))

    def filtered(self, seed: int, nodes: Sequence[int]) -> None:
        self._evidence.filtered.update(dict.fromkeys(nodes, seed))

    def cut(self, seed: int, nodes: Sequence[int]) -> None:
        self._evidence.dropped.update(dict.fromkeys(nodes, seed))
