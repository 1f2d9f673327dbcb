"""Where the pixels of a register tile stand: in the copy of a band, or in the image."""

from __future__ import annotations

from functools import partial

from partita.accelerators.tvm.kernels.convolution.band_copy import BandCopy
from partita.accelerators.tvm.kernels.convolution.blocked_layer import Layer
from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, select
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.tile import kept
from partita.accelerators.tvm.sizes.extent import Extent

WIDE = 16
"""Numbers of a vector that is a line of the cache: where they are fewer, two pixels share one, and fewer products hide a line."""


def pixel_addresses(
    kernel: Kernel, layer: Layer, copy: BandCopy, top: Value, base: Value, pixels: int, shares: bool
) -> list[Value]:
    """Where each of so many pixels from `base` on reads the first tap, in the band that begins at row `top`; do they share an
    address, since all are in one row?"""
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
    """Are addresses in rows of a known width made from one another? LLVM computes several that are alike in one vector, and takes
    them out of it at each tap, for a quarter more time. (Of tiles for AVX-512 it does not.)"""
    return layer.lanes < WIDE and layer.channels.by_block and layer.window.count > 1


def _walked(kernel: Kernel, wide: Value, above: Operand, base: Value, down: Operand, step: int, pixels: int) -> list[Value]:
    """The addresses, each from the one before: for rows of any width, since a division is long."""
    name = partial(kept, kernel)
    row, column = name("row", base // wide), name("column", base % wide)
    addresses, over = [name("at0", (above + row) * down + column * step)], name("over", as_index(down) - (wide - 1) * step)
    for p in range(1, pixels):
        is_last = column.equals(wide - 1)
        addresses.append(name(f"at{p}", addresses[-1] + select(is_last, over, step)))
        column = name(f"column{p}", select(is_last, 0, column + 1))
    return addresses
