"""The values of a task of a blocked convolution, of one of its panels, and of a tile, with the addresses of its
pixels: in the copy of a band, or in the image."""

from __future__ import annotations

from functools import partial

import attrs

from partita.accelerators.tvm.kernels.convolution.band_copy import BandCopy
from partita.accelerators.tvm.kernels.convolution.blocked_layer import Layer
from partita.accelerators.tvm.kernels.convolution.tap_ranges import TapRange
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, select
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.loops import kept
from partita.accelerators.tvm.sizes.extent import Extent


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


WIDE = 16
"""Elements of a vector that fills a cache line. With fewer, two pixels share a line, and fewer products hide its load."""


def pixel_addresses(
    kernel: Kernel, layer: Layer, copy: BandCopy, top: Value, base: Value, pixels: int, shares: bool
) -> list[Value]:
    """For each of `pixels` pixels from `base` on, the address of its first tap, in the band that begins at row `top`. If all are
    in one row (`shares`), they are static offsets from one address."""
    window, bands = layer.window, layer.bands
    if window.out[1] == 1 and not bands.copies:
        step = window.strides[0] * window.sizes[1]
        return [kernel.name_value(f"at{p}", (top + base + p) * step) for p in range(pixels)]
    name, above = partial(kept, kernel, is_kept=window.is_any), 0 if bands.copies else top
    down, step = copy.strides[0] * (copy.wide if bands.copies else window.sizes[1]), copy.strides[1]
    if shares:
        first = name("at", (above + base // window.out[1]) * down + base % window.out[1] * step)
        return [first + p * step for p in range(pixels)]
    if isinstance(window.out[1], Extent) or _is_walked(layer):
        return _walked(kernel, as_index(window.out[1]), above, base, down, step, pixels)
    at = [base + p for p in range(pixels)]
    return [name(f"at{p}", (above + a // window.out[1]) * down + a % window.out[1] * step) for p, a in enumerate(at)]


def _is_walked(layer: Layer) -> bool:
    """True if addresses in rows of a static width are derived from one another. Otherwise LLVM computes several similar ones in a
    vector and extracts them at each tap, which takes a quarter more time (but not for AVX-512)."""
    return layer.lanes < WIDE and layer.channels.by_block and layer.window.count > 1


def _walked(kernel: Kernel, wide: Value, above: Operand, base: Value, down: Operand, step: int, pixels: int) -> list[Value]:
    """The addresses, each derived from the one before: rows of dynamic width would need slow divisions."""
    name = partial(kept, kernel)
    row, column = name("row", base // wide), name("column", base % wide)
    addresses, over = [name("at0", (above + row) * down + column * step)], name("over", as_index(down) - (wide - 1) * step)
    for p in range(1, pixels):
        is_last = column.equals(wide - 1)
        addresses.append(name(f"at{p}", addresses[-1] + select(is_last, over, step)))
        column = name(f"column{p}", select(is_last, 0, column + 1))
    return addresses
