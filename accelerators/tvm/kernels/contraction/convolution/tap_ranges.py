"""The taps of a window that meet the image for at least one pixel of a register tile.

A dilated filter meets mostly padding near the border: of 3 x 3 taps with dilation 12, a pixel in the corner of an image of 14 x
14 meets one in the middle and few more. The rows and the columns of taps that a tile meets are contiguous, so two short loops
cover them."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, select
from partita.accelerators.tvm.kernels.shared.loops import kept, larger, smaller, starts
from partita.accelerators.tvm.kernels.shared.window import Window


@attrs.frozen(slots=True, eq=False)
class TapRange:
    """A range of rows, or columns, of taps."""

    first: Operand
    """The first one."""
    count: Operand
    """Number of them."""


def all_taps(window: Window) -> tuple[TapRange, TapRange]:
    """All rows and columns of the window."""
    rows, columns = window.taps
    return TapRange(0, rows), TapRange(0, columns)


def seen_taps(kernel: Kernel, window: Window, first: Value, pixels: int) -> tuple[TapRange, TapRange]:
    """The rows and columns of taps that meet the image for one of `pixels` neighbouring results, from `first` on. Results in
    several rows count as being in every column."""
    wide = window.out[1]
    last = first + (pixels - 1)
    is_one_row = (first // wide).equals(last // wide)
    left, right = select(is_one_row, first % wide, 0), select(is_one_row, last % wide, wide - 1)
    rows, columns = _ends(window, 0, first // wide, last // wide), _ends(window, 1, left, right)
    return _kept(kernel, "rows", *rows), _kept(kernel, "columns", *columns)


def _kept(kernel: Kernel, name: str, first: Operand, end: Operand) -> TapRange:
    """The range of taps from `first` to `end`, computed once per tile."""
    begin = kept(kernel, f"first_of_{name}", first)
    return TapRange(begin, kept(kernel, f"count_of_{name}", larger(end - begin, 0)))


def mean_seen(window: Window, pixels: int) -> float:
    """Mean share of all taps that tiles of this many pixels compute with `seen_taps`."""
    wide, seen = window.out[1], 0
    tiles = starts(window.pixels, pixels)
    for first in tiles:
        last = first + pixels - 1
        left, right = (first % wide, last % wide) if first // wide == last // wide else (0, wide - 1)
        seen += _count(*_ends(window, 0, first // wide, last // wide)) * _count(*_ends(window, 1, left, right))
    return seen / (len(tiles) * window.count)


def _count(first: Operand, end: Operand) -> int:
    """Number of taps from `first` to `end`, both static."""
    assert isinstance(first, int) and isinstance(end, int)
    return max(end - first, 0)


def _ends(window: Window, i: int, low: Operand, high: Operand) -> tuple[Operand, Operand]:
    """The first tap of dimension i that meets the image for a result from `low` to `high`, and the end of these taps."""
    before, stride, apart, taps = window.before[i], window.strides[i], window.dilations[i], window.taps[i]
    outside, reached = larger(before - high * stride, 0), larger(window.sizes[i] + before - low * stride, 0)
    return smaller((outside + (apart - 1)) // apart, taps), smaller((reached + (apart - 1)) // apart, taps)
