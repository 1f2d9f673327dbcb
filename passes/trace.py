"""Record of a run of passes: names, times, and sizes of the graph; and dumps of the graph in text form between them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from partita.graph.atomic_write import open_aside
from partita.graph.errors import PassError
from partita.graph.graph import Graph

if TYPE_CHECKING:
    from rich.table import Table

DumpTarget = Callable[[str, str], None]
"""Receives a title ("01-FoldConstants") and the text form."""


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


def dumper(target: str | PathLike[str] | DumpTarget | None) -> Callable[[str, Graph], None]:
    """A function that writes one numbered dump for each stage; it does nothing where nobody asked. An input that the stage before
    made is not written again."""
    if target is None:
        return _nothing
    write = target if callable(target) else folder_target(Path(target))
    numbers, last = itertools.count(), list[Graph]()

    def dump(stage: str, graph: Graph) -> None:
        if stage != "input" or not any(graph is one for one in last):
            write(f"{next(numbers):02d}-{stage}", str(graph))
        last[:] = [graph]

    return dump


def folder_target(folder: Path) -> DumpTarget:
    """Writes one file per title, atomically; creates the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PassError(f"no dumps can be written there: {error.strerror}", where=str(folder)) from error

    def write(title: str, text: str) -> None:
        path = folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', title)}.txt"
        number, aside = open_aside(folder)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise

    return write


def _nothing(stage: str, graph: Graph) -> None:
    """The dumper without a target."""
