"""The values of a task of a blocked convolution, of one of its panels, and of a tile."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.convolution.seen_taps import TapRange
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value


@attrs.frozen(slots=True, eq=False)
class Task:
    """The values of a task."""

    n: Value
    """The image."""
    top: Value
    """The first row of the band."""
    across: Value
    """The index of the range of panels."""
    image: Buffer | None
    """The copy of the band; None if the image is read in place."""
    sums: Buffer | None
    """The memory for sums between chunks; None if there is one chunk."""


@attrs.frozen(slots=True, eq=False)
class Panel:
    """The values of a panel."""

    number: Value
    pixels: int
    """Number of pixels of its tiles."""
    vectors: int
    """Number of blocks of output channels."""
    chunk: Operand
    """The index of the current chunk of input channels."""
    local: Operand
    """Its index among the panels of the task."""
    shares: bool
    """True if the pixels of a tile share an address."""


@attrs.frozen(slots=True, eq=False)
class Reads:
    """The parts of the image that a tile reads."""

    addresses: list[Value]
    """For each of its pixels, the address of the first tap."""
    taps: tuple[TapRange, TapRange]
    """The rows and columns of taps that it computes."""
