"""The results of the recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from partita.graph.formatting import counted
from partita.graph.pictures.tables import Column, terminal_table

if TYPE_CHECKING:
    from rich.table import Table

FAR = 0.01
"""A sample with a larger error, max|a - b| over max|b|, is wrong."""


@attrs.frozen(slots=True)
class RecordedValue:
    """Statistics of one value between subgraphs over the inspected calls."""

    name: str
    """The value's name."""
    subgraph: str
    """The subgraph that computes it."""
    device: str
    """The device that computed it."""
    calls: int = 0
    """Number of inspected calls."""
    nans: int = 0
    """Number of NaN in all of them."""
    infinities: int = 0
    """Number of infinities."""
    first: int | None = None
    """The number, from 1, of the first call with a NaN or an infinity."""
    low: float | None = None
    """The smallest finite element; None if there is none."""
    high: float | None = None
    """The largest finite element."""
    checksum: int | None = None
    """CRC-32 of its bytes in the last call; None unless the mode is "checksums"."""


@attrs.frozen(slots=True)
class Sample:
    """One subgraph of one call, compared with numpy on the same inputs."""

    call: int
    """The number of the call, from 1."""
    subgraph: str
    """The subgraph."""
    device: str
    """Its device."""
    error: float | None
    """The largest error of its outputs; None if numpy cannot compute them."""
    message: str = ""
    """The reason why numpy cannot."""

    @property
    def ok(self) -> bool:
        """True if the error is small enough or unknown."""
        return self.error is None or self.error <= FAR


@attrs.frozen(slots=True, eq=False, repr=False)
class Recorded:
    """The type of `model.recorded`."""

    mode: str
    """The mode: "checksums", "nan" or "sample:N"."""
    calls: int
    """Number of calls."""
    looked_at: int
    """Number of inspected calls: as many as the recorder's share of the time allows."""
    share: float
    """The fraction of the time of all calls that was spent on inspection."""
    values: tuple[RecordedValue, ...]
    """The values between subgraphs and the outputs, in order of computation."""
    samples: tuple[Sample, ...]
    """The computed samples; of thousands, the first wrong ones and the last right ones."""
    compared: int = 0
    """Number of computed samples."""

    @property
    def ok(self) -> bool:
        """True if there is no NaN, no infinity, and no wrong sample."""
        return not any(value.nans or value.infinities for value in self.values) and all(sample.ok for sample in self.samples)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**attrs.asdict(self), "ok": self.ok}

    def lines(self) -> list[str]:
        """A line for each finding: NaN, infinities, and wrong samples."""
        odd = [value for value in self.values if value.nans or value.infinities]
        lines = [
            f"{value.name} of {value.subgraph} on {value.device}: {counted(value.nans, 'NaN', 'NaN')} and "
            f"{counted(value.infinities, 'infinity', 'infinities')}, first in call {value.first}"
            for value in odd
        ]
        far = [sample for sample in self.samples if not sample.ok]
        return lines + [f"{one.subgraph} on {one.device}: error {one.error:.1e} in call {one.call}" for one in far]

    def __str__(self) -> str:
        samples = f", {counted(self.compared, 'sample')}" if self.mode.startswith("sample") else ""
        looked = f"{self.looked_at:,} of {counted(self.calls, 'call')} looked at{samples}"
        verdict = "nothing odd" if self.ok else "odd"
        return "\n".join([f"{self.mode}: {looked}: {verdict}", *(f"  {line}" for line in self.lines())])

    def __repr__(self) -> str:
        return f"<Recorded {self.mode}: {self.looked_at} of {counted(self.calls, 'call')}, {'nothing odd' if self.ok else 'odd'}>"

    def to_table(self) -> Table:
        """The values as a rich table for a terminal."""
        return terminal_table(COLUMNS, self.values, str(self).partition("\n")[0])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


COLUMNS: tuple[Column[RecordedValue], ...] = (
    Column("value", lambda value: value.name),
    Column("subgraph", lambda value: value.subgraph),
    Column("device", lambda value: value.device),
    Column("calls", lambda value: value.calls),
    Column("NaN", lambda value: value.nans),
    Column("infinite", lambda value: value.infinities),
    Column("least", lambda value: _number(value.low)),
    Column("largest", lambda value: _number(value.high)),
    Column("checksum", lambda value: "" if value.checksum is None else f"{value.checksum:08x}"),
)
"""The columns of a value's row."""
