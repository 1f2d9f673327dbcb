"""Matrices of several heads as operands of tensor cores: they are copied from where they stand, whichever way they lie."""

from __future__ import annotations

from collections.abc import Callable

from accelerators.tvm.kernels.language import Operand, Value, all_of
from accelerators.tvm.kernels.language.values import as_index
from accelerators.tvm.kernels.shared.gpu_product import Spot, spots
from accelerators.tvm.kernels.shared.gpu_sums import Tile
from accelerators.tvm.kernels.shared.heads import Head, View
from accelerators.tvm.kernels.shared.tensor_feed import Source, TensorSide, widest_copy

PositionOf = Callable[[Value, Spot], tuple[Operand, Operand]]
"""Where a spot of a step is in the matrix: its position along the depth, and along the rows or columns."""


def viewed_side(
    view: View,
    head: Head,
    tile: Tile,
    own: Value,
    extent: int,
    sizes: tuple[int, int],
    covered: tuple[int | None, int | None],
    position_of: PositionOf,
    is_left: bool = False,
) -> TensorSide:
    """A head's matrix, of which a step has `extent` rows or columns of the tile's depth. `sizes` are its depth and the number of
    its rows or columns; all steps of all tiles cover so many of both, which is None where any number is, and what is beyond the
    matrix counts as zero."""
    deep, beside = (-1, -2) if is_left else (-2, -1)
    turned = view.strides.steps[deep] == 1
    lanes = neighbours(view, deep if turned else beside, sizes[0] if turned else sizes[1])

    def source(step: Value, spot: Spot) -> Source:
        k, at = position_of(step, spot)
        tests = [as_index(i) < size for i, size, most in zip((k, at), sizes, covered, strict=True) if most != size]
        position = view.at(head, at, k) if is_left else view.at(head, k, at)
        return Source((position,), all_of(tests) if tests else None)

    return TensorSide(view.buffer, extent, tile.depth, spots(tile, own, extent, lanes, turned), lanes, source, turned)


def neighbours(view: View, axis: int, size: int) -> int:
    """The most numbers beside each other along an axis of so many that are copied at once: wherever a head's matrix begins,
    and whichever line it is, they are aligned."""
    steps = view.strides.steps
    if steps[axis] != 1:
        return 1
    others = [step for i, step in enumerate(steps) if i != len(steps) + axis]
    return widest_copy(view.buffer.element.bits // 8, size, view.strides.offset, *others)
