"""Record of a run of passes: names, times, and sizes of the graph."""

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
    """Time of the pass."""
    verify_seconds: float
    """Time to verify its result; 0 if that is turned off."""
    nodes_before: int
    """Number of nodes before."""
    nodes_after: int
    """Number of nodes after."""
    changed: bool
    """True if the graph changed."""
    dropped: tuple[str, ...]
    """Stale graph attributes that were dropped."""
    graph: str = ""
    """The name of the graph."""


@attrs.define(slots=True)
class PassTrace:
    """The passes that ran, in order; pass one as `trace=` to have it filled."""

    records: list[PassRecord] = attrs.Factory(list)
    """One record per pass."""

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
        """The passes as a table for a terminal, by rich."""
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
        """Prints the table."""
        import rich

        rich.print(self.table())
