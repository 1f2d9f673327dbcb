"""Results of a benchmark, as rows, as a table and as plain data."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators import Profile
from partita.compare import Difference
from partita.graph.formatting import counted
from partita.graph.pictures.tables import Column, Tabular, terminal_table
from partita.measuring.rounds import Contender, Effort

if TYPE_CHECKING:
    from rich.table import Table


@attrs.frozen(slots=True)
class Row:
    """Measurements of one contender."""

    devices: str
    """The devices, as the user named them."""
    subgraphs: int | None
    """Number of subgraphs of the compiled model; None for a function."""
    compile_seconds: float | None
    """Seconds of compiling; few if the model was in the cache."""
    median_ms: float
    """Median time of a run."""
    p90_ms: float
    """90th percentile of the times."""
    p99_ms: float
    """99th percentile of the times."""
    min_ms: float
    """Time of the fastest run."""
    runs: int
    """Number of runs measured individually."""
    throughput: float
    """Items per second with one call per stream at once: calls times the batch."""
    ratio: float
    """Median over the rounds of its time divided by the first contender's time in the same round."""
    ratio_spread: float
    """Half the distance between the 10th and the 90th percentile of that ratio."""
    outputs: tuple[Difference, ...]
    """Comparison of each output with that of the first contender; empty for the first itself."""

    @property
    def difference(self) -> float:
        """Largest error of any output."""
        return max((one.worst for one in self.outputs), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        fields = attrs.asdict(self, recurse=False)
        return {**fields, "difference": self.difference, "outputs": [one.as_data() for one in self.outputs]}


@attrs.frozen(slots=True, eq=False, repr=False)
class BenchReport(Tabular):
    """Result of `bench`."""

    model: str
    """Name of the model."""
    batch: int
    """Number of items of one call: the first size of the first input."""
    streams: int
    """Number of concurrent calls in the measurement of throughput."""
    rows: tuple[Row, ...]
    """The contenders in order; the others are compared with the first."""
    refused: Mapping[str, str]
    """Contenders that could not be compiled, each with the reason."""
    profile: Profile | None = None
    """Profile of the first contender, if requested."""

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
        """A row for each contender as a rich table for a terminal."""
        title = f"{self.model}: one call of {counted(self.batch, 'item')}"
        caption = f"throughput in items per second, {counted(self.streams, 'call')} at once"
        return terminal_table(COLUMNS, self.rows, title, caption, folds=True)

    def __str__(self) -> str:
        from rich.console import Console

        stream = StringIO()
        Console(file=stream, width=160).print(self.to_table())
        return stream.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        times = ", ".join(f"{row.devices} {row.median_ms:.3f} ms" for row in self.rows)
        return f"<BenchReport of {self.model!r}: {times}>"


COLUMNS: tuple[Column[Row], ...] = (
    Column("devices", lambda row: row.devices),
    Column("subgraphs", lambda row: "" if row.subgraphs is None else row.subgraphs, right=True),
    Column("median", lambda row: f"{row.median_ms:.3f} ms", right=True),
    Column("90 %", lambda row: f"{row.p90_ms:.3f} ms", right=True),
    Column("99 %", lambda row: f"{row.p99_ms:.3f} ms", right=True),
    Column("fastest", lambda row: f"{row.min_ms:.3f} ms", right=True),
    Column("runs", lambda row: row.runs, right=True),
    Column("throughput", lambda row: f"{row.throughput:,.1f}", right=True),
    Column("times the first", lambda row: f"{row.ratio:.2f} ±{row.ratio_spread:.2f}", right=True),
    Column("difference", lambda row: f"{row.difference:.0e}", right=True),
    Column("ready in", lambda row: "" if row.compile_seconds is None else f"{row.compile_seconds:.1f} s", right=True),
)
"""The columns of a contender's row."""


def report(
    contenders: Sequence[Contender], inputs: Mapping[str, Any], effort: Effort, refused: Mapping[str, str], profile: bool
) -> BenchReport:
    """The measurements of all contenders as a report."""
    first = contenders[0]
    assert first.model is not None
    batch = next((len(value) for value in inputs.values() if isinstance(value, np.ndarray) and value.ndim), 1)
    rows = tuple(_row(one, first, batch) for one in contenders)
    where = first.model.profile(dict(inputs)) if profile else None
    return BenchReport(first.model.graph.name, batch, effort.streams, rows, dict(refused), where)


def _row(one: Contender, first: Contender, batch: int) -> Row:
    every = [milliseconds for block in one.rounds for milliseconds in block]
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(one.rounds, first.rounds) if a and b]
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
