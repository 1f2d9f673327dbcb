"""The bands and ranges of panels into which a quantized product is divided: those of its cut, or, for images of dynamic height
and width, those that a kernel computes from the sizes of a call."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, maximum, minimum, select, uint8
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.quantized.cut import FRAME, HEAVY, LARGE_FRAME, NEAR, Cut, Shape
from partita.accelerators.tvm.kernels.shared.loops import is_shared_out, kept, pieces
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import BYTE_PRODUCTS


@attrs.frozen(slots=True, eq=False)
class Bands:
    """The division of the work into tasks."""

    count: Operand
    """The number of bands of an image."""
    rows: Operand
    """Rows of the result in a band."""
    room: Operand
    """Rows of the result that a band's copy has space for."""
    parts: Operand
    """Number of ranges of panels."""
    parallel: bool | Value
    """True if threads share the work, or a condition."""

    @property
    def cuts_panels(self) -> bool:
        """True if there may be several ranges of panels."""
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
    """The bands of images of dynamic height and width: equal ones, of at most `tallest` rows. If there is enough work their
    number is about a multiple of the threads', and if they are fewer than the threads, there are `parts` ranges of panels."""
    high, tall = as_index(shape.window.out[0]), kept(kernel, "tall", tallest)
    wanted = (high + tall - 1) // tall
    if is_enough is not False:
        each = as_index(machine.threads) if is_enough is True else select(is_enough, as_index(machine.threads), 1)
        wanted = (wanted + each - 1) // each * each
    wanted = kept(kernel, "wanted", wanted)
    rows = kept(kernel, "rows", (high + wanted - 1) // wanted)
    count = kept(kernel, "bands", (high + rows - 1) // rows)
    ranges = kept(kernel, "ranges", select(count >= machine.threads, 1, as_index(parts))) if parts > 1 else parts
    # Only a parallel loop gives each task its own memory of dynamic size, even if one thread runs all tasks.
    return Bands(count, rows, rows, ranges, True if shape.copies else is_enough)


def _tallest(shape: Shape) -> Operand:
    """Most rows of a band whose input stays in a cache."""
    window = shape.window
    high = as_index(window.out[0])
    if shape.outs * shape.depth >= HEAVY:
        return high
    row = as_index(window.sizes[1]) * (window.strides[0] * shape.across * shape.element.bits // 8)
    frame = FRAME if shape.element is uint8 else LARGE_FRAME
    return minimum(maximum((frame if shape.copies else NEAR) // row, 1), high)
