"""What the recorder saw of a model at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from partita.graph.words import counted

if TYPE_CHECKING:
    from rich.table import Table

FAR = 0.01
"""An error of a sample, max|a - b| over max|b|, that is called wrong."""


@attrs.frozen(slots=True)
class RecordedValue:
    """What one value between subgraphs looked like in the calls that were looked at."""

    name: str
    """The value's name."""
    subgraph: str
    """The subgraph that makes it."""
    device: str
    """The device that made it."""
    calls: int = 0
    """How many calls were looked at."""
    nans: int = 0
    """How many NaN there were, in all of them."""
    infinities: int = 0
    """How many infinities there were."""
    first: int | None = None
    """The number of the first call that had a NaN or an infinity, from 1."""
    low: float | None = None
    """The least finite number; None for what has no numbers."""
    high: float | None = None
    """The largest finite number."""
    checksum: int | None = None
    """CRC-32 of its bytes in the last call; None unless checksums are asked for."""


@attrs.frozen(slots=True)
class Sample:
    """One subgraph of one call, held against numpy on the inputs that it had."""

    call: int
    """The number of the call, from 1."""
    subgraph: str
    """The subgraph."""
    device: str
    """Its device."""
    error: float | None
    """The largest error of its outputs; None where numpy cannot compute it."""
    message: str = ""
    """Why numpy cannot."""

    @property
    def ok(self) -> bool:
        """Is it near enough, or not known?"""
        return self.error is None or self.error <= FAR


@attrs.frozen(slots=True, eq=False, repr=False)
class Recorded:
    """The object that `model.recorded` gives."""

    mode: str
    """What was asked for: "checksums", "nan" or "sample:N"."""
    calls: int
    """How many calls there were."""
    looked_at: int
    """How many of them the recorder looked at: as many as its share of the time allows."""
    share: float
    """The part of the time of all calls that looking took."""
    values: tuple[RecordedValue, ...]
    """The values between subgraphs and the outputs, in the order in which they are made."""
    samples: tuple[Sample, ...]
    """The samples that are computed; of thousands, the first that are wrong and the last that are right."""
    compared: int = 0
    """How many samples were computed."""

    @property
    def ok(self) -> bool:
        """Was there no NaN, no infinity, and no sample that is far off?"""
        return not any(value.nans or value.infinities for value in self.values) and all(sample.ok for sample in self.samples)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**attrs.asdict(self), "ok": self.ok}

    def lines(self) -> list[str]:
        """What is worth a line: NaN, infinities, and samples that are far off."""
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
        """The values, for a terminal, by rich."""
        from rich.table import Table
        from rich.text import Text

        columns = ("value", "subgraph", "device", "calls", "NaN", "infinite", "least", "largest", "checksum")
        table = Table(*columns, title=Text(str(self).partition("\n")[0]))
        for value in self.values:
            numbers = ["" if number is None else f"{number:.4g}" for number in (value.low, value.high)]
            checksum = "" if value.checksum is None else f"{value.checksum:08x}"
            counts = str(value.calls), str(value.nans), str(value.infinities)
            table.add_row(Text(value.name), Text(value.subgraph), Text(value.device), *counts, *numbers, checksum)
        return table
