"""What was measured, as rows, as a table and as plain data."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators import Profile
from partita.compare import Difference
from partita.graph.words import counted
from partita.measuring.contender import Contender
from partita.measuring.rounds import Effort

if TYPE_CHECKING:
    from rich.table import Table


@attrs.frozen(slots=True)
class Row:
    """One contender's measurements."""

    devices: str
    """The devices, as the user named them."""
    subgraphs: int | None
    """How many subgraphs the compiled model has; None for a function."""
    compile_seconds: float | None
    """The seconds that compiling took; few where the cache had the model."""
    median_ms: float
    """Half of the runs took longer."""
    p90_ms: float
    """One run in ten took longer."""
    p99_ms: float
    """One run in a hundred took longer."""
    min_ms: float
    """The fastest run."""
    runs: int
    """How many runs were measured one by one."""
    throughput: float
    """The items in a second, with as many calls at once as there are streams: calls times the batch."""
    ratio: float
    """The median over the rounds of its time over the first contender's time in the same round."""
    ratio_spread: float
    """Half the distance between the 10th and the 90th percentile of that ratio."""
    outputs: tuple[Difference, ...]
    """The distance of each output from that of the first contender; none for the first itself."""

    @property
    def difference(self) -> float:
        """The largest distance of any output."""
        return max((one.worst for one in self.outputs), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        fields = attrs.asdict(self, recurse=False)
        return {**fields, "difference": self.difference, "outputs": [one.as_data() for one in self.outputs]}


@attrs.frozen(slots=True, eq=False, repr=False)
class BenchReport:
    """The object that `bench` gives."""

    model: str
    """The model's name."""
    batch: int
    """How many items one call computes: the first size of the first input."""
    streams: int
    """How many calls ran at once where throughput was measured."""
    rows: tuple[Row, ...]
    """The contenders in order; the first is the one that the others are compared with."""
    refused: Mapping[str, str]
    """The contenders that could not be compiled, each with the reason."""
    profile: Profile | None = None
    """Where the first contender's time goes, if that was asked for."""

    def __getitem__(self, devices: str) -> Row:
        """The row of that contender."""
        for row in self.rows:
            if row.devices == devices:
                return row
        raise KeyError(devices)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "model": self.model,
            "batch": self.batch,
            "streams": self.streams,
            "contenders": [row.to_dict() for row in self.rows],
            "refused": dict(self.refused),
            "profile": None if self.profile is None else self.profile.to_dict(),
        }

    def to_table(self) -> Table:
        """A row for each contender, for a terminal, by rich."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(f"{self.model}: one call of {counted(self.batch, 'item')}"))
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == COLUMNS[0] else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, _cells(row)))
        table.caption = f"throughput in items per second, {counted(self.streams, 'call')} at once"
        return table

    def __rich__(self) -> Table:
        return self.to_table()

    def __str__(self) -> str:
        from rich.console import Console

        stream = StringIO()
        Console(file=stream, width=160).print(self.to_table())
        return stream.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        times = ", ".join(f"{row.devices} {row.median_ms:.3f} ms" for row in self.rows)
        return f"<BenchReport of {self.model!r}: {times}>"


TIMES = ("median", "90 %", "99 %", "fastest")
"""The columns of milliseconds."""

COLUMNS = ("devices", "subgraphs", *TIMES, "runs", "throughput", "times the first", "difference", "ready in")
"""The titles of the table's columns."""


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.devices,
        "" if row.subgraphs is None else str(row.subgraphs),
        *(f"{value:.3f} ms" for value in (row.median_ms, row.p90_ms, row.p99_ms, row.min_ms)),
        str(row.runs),
        f"{row.throughput:,.1f}",
        f"{row.ratio:.2f} ±{row.ratio_spread:.2f}",
        f"{row.difference:.0e}",
        "" if row.compile_seconds is None else f"{row.compile_seconds:.1f} s",
    )


def report(
    contenders: Sequence[Contender], inputs: Mapping[str, Any], effort: Effort, refused: Mapping[str, str], profile: bool
) -> BenchReport:
    """What was measured, as rows."""
    first = contenders[0]
    assert first.model is not None
    batch = next((len(value) for value in inputs.values() if isinstance(value, np.ndarray) and value.ndim), 1)
    rows = tuple(_row(one, first, batch) for one in contenders)
    where = first.model.profile(dict(inputs)) if profile else None
    return BenchReport(first.model.graph.name, batch, effort.streams, rows, dict(refused), where)


def _row(one: Contender, first: Contender, batch: int) -> Row:
    every = [milliseconds for block in one.rounds for milliseconds in block]
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(one.rounds, first.rounds)]
    low, ratio, high = np.percentile(ratios, (10, 50, 90))
    median, p90, p99 = np.percentile(every, (50, 90, 99))
    rate = statistics.median(one.rates) if one.rates else 1e3 * len(every) / sum(every)
    return Row(
        devices=one.name,
        subgraphs=None if one.model is None else one.model.properties.subgraphs,
        compile_seconds=one.compile_seconds,
        median_ms=float(median),
        p90_ms=float(p90),
        p99_ms=float(p99),
        min_ms=min(every),
        runs=len(every),
        throughput=rate * batch,
        ratio=float(ratio),
        ratio_spread=float(high - low) / 2,
        outputs=tuple(one.outputs),
    )
