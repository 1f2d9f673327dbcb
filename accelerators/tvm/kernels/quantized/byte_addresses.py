"""Addresses of the pixels of a tile of bytes, in the copy of a band or in the image."""

from __future__ import annotations

from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, select
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.quantized.cut import Shape
from partita.accelerators.tvm.kernels.shared.tile import kept
from partita.accelerators.tvm.sizes.extent import Extent


def byte_addresses(
    kernel: Kernel, shape: Shape, group: Value, top: Value | None, base: Value, wide: Operand, count: int
) -> list[Value]:
    """For each of `count` pixels from `base` on, the address of the first tap of the group's first channel, in rows of `wide`
    pixels. The band begins at row `top`; None for a copy, which holds the band alone."""
    window, across = shape.window, shape.across
    if isinstance(window.out[1], Extent):
        pixel = base if top is None else top * window.out[1] + base
        return _of_any(kernel, shape, group, pixel, wide, count)
    addresses = []
    for r in range(count):
        row, column = (base + r) // window.out[1], (base + r) % window.out[1]
        if window.out[1] == 1:
            row, column = base + r, base * 0
        row = row if top is None else top + row
        position = row * (window.strides[0] * wide) + column * window.strides[1]
        addresses.append(kernel.name_value(f"at{r}", position * across + group * (across // shape.groups)))
    return addresses


def _of_any(kernel: Kernel, shape: Shape, group: Value, pixel: Value, wide: Operand, count: int) -> list[Value]:
    """The same for images of dynamic width, from a pixel of the result on. Only the first address needs a division: each other
    pixel follows the one before, or begins the next row."""
    window, across = shape.window, shape.across
    out = as_index(window.out[1])
    row, column = kept(kernel, "row", pixel // out), kept(kernel, "column", pixel % out)
    step, line = window.strides[1] * across, as_index(wide) * (window.strides[0] * across)
    back = kept(kernel, "back", line - out * step)
    at = kept(kernel, "at0", row * line + column * step + group * (across // shape.groups))
    addresses = [at]
    for r in range(1, count):
        column = kept(kernel, f"column{r}", column + 1)
        is_next = column >= out
        at = kept(kernel, f"at{r}", at + step + select(is_next, back, 0))
        column = kept(kernel, f"column{r}", select(is_next, 0, column))
        addresses.append(at)
    return addresses
