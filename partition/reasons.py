"""The records that plans and reports consist of: subgraphs, and the reasons of their borders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import attrs


@attrs.frozen(slots=True)
class Group:
    """One subgraph."""

    name: str
    """The name of its call, unless the property chooses another."""
    property: str
    """The property that chose it."""
    index: int
    """Its index among the property's subgraphs."""
    device: str | None
    """The common affinity of its nodes."""
    nodes: tuple[str, ...]
    """Its ops, in topological order."""


@attrs.frozen(slots=True)
class Border:
    """An edge that ends at a subgraph's border, and the reason."""

    producer: str
    """The node that makes the value."""
    consumer: str
    """The node that reads it."""
    inside: str
    """The subgraph whose border it is: if both ends are in subgraphs, that of the property that chose first."""
    rule: str
    """The kind of reason: input, call, dead, unsupported, unselected, device, callback, control, filter, size, hook, pattern,
    taken or cycle."""
    text: str
    """The reason in words."""
    bytes: int | None = None
    """The bytes of the values between the two; None without static types, which InferShape infers."""


@attrs.frozen(slots=True)
class Outside:
    """An op that is in no subgraph, and the reason."""

    node: str
    """The op."""
    rule: str
    """The kind of reason, as for a border."""
    text: str
    """The reason in words."""


class Reasons(Protocol):
    """The source of a plan's reasons: computed on demand, or read from a file."""

    def borders(self) -> Iterable[Border]: ...
    def outside(self) -> Iterable[Outside]: ...


@attrs.frozen(slots=True)
class WrittenReasons:
    """Reasons read from a file."""

    border_list: tuple[Border, ...]
    """The borders."""
    outside_list: tuple[Outside, ...]
    """The ops outside."""

    def borders(self) -> Iterable[Border]:
        return self.border_list

    def outside(self) -> Iterable[Outside]:
        return self.outside_list
