"""Combinations of selectors: `a | b`, `a & b`, `~a`.

Every call goes to every part, in order, even if the first answer decides. Therefore each part that keeps state
gets all calls that it would get alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.selector import ContainOpSelector, Labeler, SubgraphSelector, call_filter

# ruff: noqa: C419  the lists make sure that every part is called


class Combined(SubgraphSelector):
    """A selector that combines others."""

    def __init__(self, *parts: SubgraphSelector) -> None:
        self.parts = parts
        """The selectors combined."""
        self.stateless = all(part.stateless for part in parts)

    def reset(self) -> None:
        for part in self.parts:
            part.reset()

    def op_names(self) -> Iterable[str]:
        return dict.fromkeys(name for part in self.parts for name in part.op_names())

    def _labelers(self) -> list[Labeler] | None:
        """The labelers of the parts; None unless each part has one."""
        labelers = [labeler for part in self.parts if (labeler := part.labeler()) is not None]
        return labelers if len(labelers) == len(self.parts) else None

    @property
    def by_affinity(self) -> bool:
        """True if a part groups by affinity, so that there are several labels."""
        return any(isinstance(part, (Combined, ContainOpSelector)) and part.by_affinity for part in self.parts)


class _BinarySelector(Combined):
    """A selector that combines the answers of all parts by one function. `filter` keeps the candidates by it likewise."""

    agree: ClassVar[staticmethod[[Iterable[bool]], bool]]
    """The function: any or all."""
    operator: ClassVar[str]
    """The operator that makes such a selector."""

    def select(self, node: Node) -> bool:
        return self.agree([part.select(node) for part in self.parts])

    def select_input(self, cur: Node, new: Node) -> bool:
        return self.agree([part.select_input(cur, new) for part in self.parts])

    def select_output(self, cur: Node, new: Node) -> bool:
        return self.agree([part.select_output(cur, new) for part in self.parts])

    def filter(self, candidates: list[Node], graph: Graph | None = None) -> list[Node]:
        kept = [set(map(id, call_filter(part.filter, graph, list(candidates)))) for part in self.parts]
        return [node for node in candidates if self.agree(id(node) in of_part for of_part in kept)]

    def __repr__(self) -> str:
        return f"({f' {self.operator} '.join(map(repr, self.parts))})"


class EitherSelector(_BinarySelector):
    """`a | b`: accepts a node or edge if at least one of the two does. `filter` keeps the candidates that either keeps."""

    agree, operator = staticmethod(any), "|"

    def labeler(self) -> Labeler | None:
        labelers = self._labelers()
        if labelers is None or self.by_affinity:
            return None  # the union of two equivalences is none
        return lambda node: True if any([labeler(node) for labeler in labelers]) else None

    def why_not(self, node: Node) -> str | None:
        reasons = [reason for part in self.parts if (reason := part.why_not(node)) is not None]
        return "; ".join(reasons) if len(reasons) == len(self.parts) else None


class BothSelector(_BinarySelector):
    """`a & b`: accepts a node or edge if both do. `filter` keeps the candidates that both keep."""

    agree, operator = staticmethod(all), "&"

    def labeler(self) -> Labeler | None:
        labelers = self._labelers()
        return None if labelers is None else lambda node: _joint([labeler(node) for labeler in labelers])

    def why_not(self, node: Node) -> str | None:
        return next((reason for part in self.parts if (reason := part.why_not(node)) is not None), None)


class InverseSelector(Combined):
    """`~a`: accepts a node or edge if `a` does not. `filter` keeps everything."""

    def select(self, node: Node) -> bool:
        return not self.parts[0].select(node)

    def select_input(self, cur: Node, new: Node) -> bool:
        return not self.parts[0].select_input(cur, new)

    def select_output(self, cur: Node, new: Node) -> bool:
        return not self.parts[0].select_output(cur, new)

    def labeler(self) -> Labeler | None:
        labelers = self._labelers()
        if labelers is None or self.by_affinity:
            return None
        return lambda node: True if labelers[0](node) is None else None

    def __repr__(self) -> str:
        return f"~{self.parts[0]!r}"


def _joint(labels: list[Hashable | None]) -> Hashable | None:
    """One label for several: those other than True."""
    if None in labels:
        return None
    rest = [label for label in labels if label is not True]
    return True if not rest else rest[0] if len(rest) == 1 else tuple(rest)
