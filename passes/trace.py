"""What a run of passes did: which, in what time, and how the graph's size changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from rich.table import Table


@attrs.frozen(slots=True)
class PassRecord:
    """One pass that ran."""

    name: str
    """The pass."""
    seconds: float
    """The time it took."""
    verify_seconds: float
    """The time it took to verify what it returned; 0 if that is turned off."""
    nodes_before: int
    """How many nodes the graph had."""
    nodes_after: int
    """How many it has."""
    changed: bool
    """Is the graph another one?"""
    dropped: tuple[str, ...]
    """Graph attributes that no longer hold and were dropped."""


@attrs.define(slots=True)
class PassTrace:
    """The passes that ran, in order; give one as `trace=` to have it filled."""

    records: list[PassRecord] = attrs.Factory(list)
    """One for each pass."""

    @property
    def seconds(self) -> float:
        """The time of all passes, without verification."""
        return sum(record.seconds for record in self.records)

    def __iter__(self) -> Iterator[PassRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __str__(self) -> str:
        return "\n".join(
            f"{r.name:<20} {1e3 * r.seconds:9.1f} ms  {r.nodes_before:>8} -> {r.nodes_after:>8} nodes"
            for r in self.records
        )

    def table(self) -> Table:
        """The passes as a table for a terminal, which rich draws."""
        from rich.table import Table

        table = Table("pass", "ms", "verify ms", "nodes before", "after", "dropped")
        for column in table.columns[1:5]:
            column.justify = "right"
        for r in self.records:
            after = str(r.nodes_after) if r.changed else "="
            times = f"{1e3 * r.seconds:.1f}", f"{1e3 * r.verify_seconds:.1f}"
            table.add_row(r.name, *times, str(r.nodes_before), after, ", ".join(r.dropped))
        return table

    def print(self) -> None:
        """Print the table."""
        import rich

        rich.print(self.table())
