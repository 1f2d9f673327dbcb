"""The report of what `compile` did and why: the placement, moved ops, the subgraphs, and the partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.building.subgraphs import Move
from partita.accelerators.interface.compile_story import SHOWN, CompileStory
from partita.accelerators.placement.placement import Placement, placement_tables
from partita.graph.formatting import counted, first_of
from partita.graph.pictures.html import bundle, lines
from partita.graph.pictures.tables import Column, Tabular, notebook_table, terminal_table
from partita.partition import PartitionReport

if TYPE_CHECKING:
    from rich.table import Table


@attrs.frozen(slots=True)
class SubgraphRow:
    """One compiled subgraph."""

    name: str
    """The name of its call."""
    device: str
    """The device that runs it."""
    ops: int
    """Number of ops."""
    seconds: float
    """Compile time in seconds."""
    story: CompileStory | None = None
    """Why it was compiled or read from the cache, and the cost of each kernel; None if unknown."""

    @property
    def why(self) -> str:
        """Why it was compiled, in words."""
        if self.story is None:
            return ""
        return "in the cache" if self.story.from_cache else self.story.because

    def __str__(self) -> str:
        return f"{self.name} on {self.device}: {counted(self.ops, 'op')}"


COLUMNS: tuple[Column[SubgraphRow], ...] = (
    Column("subgraph", lambda row: row.name),
    Column("device", lambda row: row.device),
    Column("ops", lambda row: row.ops),
    Column("ready in", lambda row: f"{row.seconds:.2f} s", notebook="compiled in"),
    Column("compiled because", lambda row: row.why, notebook=""),
)
"""The columns of a subgraph's row, in terminals and notebooks."""


@attrs.frozen(slots=True, eq=False, repr=False)
class CompileReport(Tabular):
    """The type of `model.report`."""

    name: str
    """The model's name."""
    automatic: bool
    """True if ops were placed by priority, False if by the graph's affinities."""
    placement: Placement
    """The device of each op, after all moves; `why(name)` gives the reason."""
    moves: tuple[Move, ...]
    """The ops that a device accepted and could not compile, and the devices that they moved to."""
    subgraphs: tuple[SubgraphRow, ...]
    """The subgraphs that were compiled."""
    partition: PartitionReport
    """The partition of the graph."""
    notes: tuple[str, ...]
    """Further notes."""

    def why(self, node: str) -> str:
        """The device of the node, and why it is not on the preferred devices."""
        return self.placement.why(node)

    def compiling(self, most: int = SHOWN) -> str:
        """Why each subgraph was compiled or read from the cache, and the slowest kernels."""
        lines: list[str] = []
        for row in self.subgraphs:
            story = row.story.lines(most) if row.story is not None else [f"ready in {row.seconds:.2f} s"]
            lines += [f"{row.name} on {row.device}: {story[0]}", *story[1:]]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "model": self.name,
            "automatic": self.automatic,
            "placement": self.placement.to_dict(),
            "moves": [{**attrs.asdict(move), "nodes": list(move.nodes), "to": dict(move.to)} for move in self.moves],
            "subgraphs": [attrs.asdict(row) for row in self.subgraphs],
            "partition": self.partition.to_dict(),
            "notes": list(self.notes),
        }

    def to_table(self, most: int = 30) -> Table:
        """The subgraphs and moves as a rich table for a terminal."""
        return terminal_table(COLUMNS, self.subgraphs, self.headline, most=most)

    def summary(self) -> list[Table | str]:
        """The subgraphs, moves and notes, as the command line prints them."""
        return [self.to_table(), *move_lines(self.moves), *self.notes]

    def print(self) -> None:
        """Print the subgraphs, then the placement."""
        import rich
        from rich.text import Text

        lines = [*move_lines(self.moves), *first_of(self.notes)]
        rich.print(self.to_table(), self.placement.to_table(), *map(Text, lines))

    @property
    def headline(self) -> str:
        """The numbers of ops and subgraphs, in one line."""
        how = "placed by priority" if self.automatic else "placed by affinity"
        return f"{self.name}: {counted(self.placement.ops, 'op')} in {counted(len(self.subgraphs), 'subgraph')}, {how}"

    def __str__(self) -> str:
        lines = [self.headline, *(f"  {row}" for row in self.subgraphs[:20])]
        if len(self.subgraphs) > 20:
            lines.append(f"  ... and {len(self.subgraphs) - 20} more")
        lines += str(self.placement).split("\n")[1:]
        own = [note for note in self.notes if note not in self.placement.notes]
        return "\n".join([*lines, *move_lines(self.moves), *first_of(own)])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The representation for notebooks."""
        return bundle(self, report_html(self, move_lines(self.moves)))

    def __repr__(self) -> str:
        return f"<CompileReport of {self.name!r}: {counted(len(self.subgraphs), 'subgraph')}, {counted(len(self.moves), 'move')}>"


def report_html(report: CompileReport, moves: Sequence[str]) -> str:
    """The subgraphs, the placement, moves and notes."""
    shown = notebook_table(COLUMNS, report.subgraphs, report.headline)
    return shown + placement_tables(report.placement) + lines([*moves, *report.notes])


def move_lines(moves: Sequence[Move]) -> list[str]:
    """A line for each move."""
    return [f"moved: {m.subgraph} ({counted(len(m.nodes), 'op')}) from {m.device} to {_places(m)}: {m.reason}" for m in moves]


def _places(move: Move) -> str:
    return ", ".join(dict.fromkeys(move.to.values()))
