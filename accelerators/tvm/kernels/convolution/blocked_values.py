"""What is known while a task of a blocked convolution is written, a panel of it, and a tile of that."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.convolution.seen_taps import TapRange
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value


@attrs.frozen(slots=True, eq=False)
class Task:
    """The values that are known throughout a task."""

    n: Value
    """The image."""
    top: Value
    """The first row of the band."""
    across: Value
    """The number of the range of panels."""
    image: Buffer | None
    """The copy of the band, if there is one."""
    sums: Buffer | None
    """Where sums wait from chunk to chunk, if there are several."""


@attrs.frozen(slots=True, eq=False)
class Panel:
    """The values that are known while one panel is computed."""

    number: Value
    pixels: int
    """Pixels of its tiles."""
    vectors: int
    """Blocks of output channels in it."""
    chunk: Operand
    """The number of the chunk of input channels that is walked."""
    local: Operand
    """Its number among the panels of the task."""
    shares: bool
    """Do the pixels of a tile share an address?"""


@attrs.frozen(slots=True, eq=False)
class Reads:
    """What a tile reads of the image."""

    addresses: list[Value]
    """Where each of its pixels reads the first tap."""
    taps: tuple[TapRange, TapRange]
    """The rows and columns of taps that it walks."""
