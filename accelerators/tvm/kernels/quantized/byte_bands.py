"""The bands and ranges of panels into which a quantized product is cut: those of its cut, or, where images have any height and
width, those that a kernel computes from the sizes of a call."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, maximum, minimum, select, uint8
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.quantized.cut import FRAME, HEAVY, LARGE_FRAME, NEAR, Cut, Shape
from partita.accelerators.tvm.kernels.shared.nest import is_shared_out
from partita.accelerators.tvm.kernels.shared.tile import kept, pieces
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.work import BYTE_PRODUCTS


@attrs.frozen(slots=True, eq=False)
class Bands:
    """How the work is shared out."""

    count: Operand
    """The number of bands of an image."""
    rows: Operand
    """How many rows of the result each has."""
    room: Operand
    """The rows that a band's copy has room for."""
    parts: Operand
    """Into how many ranges the panels are cut."""
    parallel: bool | Value
    """Do threads share the work?"""

    @property
    def cuts_panels(self) -> bool:
        """May there be several ranges of panels?"""
        return not isinstance(self.parts, int) or self.parts > 1


def bands_of(kernel: Kernel, cut: Cut, machine: Machine) -> Bands:
    """The bands of a product."""
    shape, window = cut.shape, cut.shape.window
    if not window.is_any:
        return Bands(cut.bands, cut.rows, cut.rows, cut.parts, cut.parallel)
    is_enough = is_shared_out(window.pixels * shape.outs * shape.depth, machine, BYTE_PRODUCTS)
    if window.is_flat:
        count = kept(kernel, "bands", pieces(window.out[0], cut.rows))
        rows = kept(kernel, "rows", (as_index(window.out[0]) + count - 1) // count)
        return Bands(count, rows, cut.rows, cut.parts, is_enough)
    return bands_of_images(kernel, shape, _tallest(shape), cut.parts, machine, is_enough)


def bands_of_images(
    kernel: Kernel, shape: Shape, tallest: Operand, parts: int, machine: Machine, is_enough: bool | Value
) -> Bands:
    """The bands of images of any height and width: equal ones, no more rows than the tallest has. Where the work is enough each
    thread has as many bands, and where these are fewer than the threads there are so many ranges of panels."""
    high, tall = as_index(shape.window.out[0]), kept(kernel, "tall", tallest)
    wanted = (high + tall - 1) // tall
    if is_enough is not False:
        each = as_index(machine.threads) if is_enough is True else select(is_enough, as_index(machine.threads), 1)
        wanted = (wanted + each - 1) // each * each
    wanted = kept(kernel, "wanted", wanted)
    rows = kept(kernel, "rows", (high + wanted - 1) // wanted)
    count = kept(kernel, "bands", (high + rows - 1) // rows)
    ranges = kept(kernel, "ranges", select(count >= machine.threads, 1, as_index(parts))) if parts > 1 else parts
    # Memory whose size is computed while the kernel runs is had by a task of its own alone, even where one thread runs them all.
    return Bands(count, rows, rows, ranges, True if shape.copies else is_enough)


def _tallest(shape: Shape) -> Operand:
    """The most rows of a band such that what its tiles read stays in a cache."""
    window = shape.window
    high = as_index(window.out[0])
    if shape.outs * shape.depth >= HEAVY:
        return high
    row = as_index(window.sizes[1]) * (window.strides[0] * shape.across * shape.element.bits // 8)
    frame = FRAME if shape.element is uint8 else LARGE_FRAME
    return minimum(maximum((frame if shape.copies else NEAR) // row, 1), high)
