"""Matrices of several heads as tensor-core operands, read in place in any orientation."""

from __future__ import annotations

from collections.abc import Callable

from partita.accelerators.tvm.kernels.contraction.gpu_product import SlicedTile, Spot, spots
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import TensorTile
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads, View
from partita.accelerators.tvm.kernels.contraction.operands import TwoSided
from partita.accelerators.tvm.kernels.contraction.tensor_product import Source, TensorSide, widest_copy
from partita.accelerators.tvm.kernels.language import Operand, Value, all_of
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.sizes.extent import Extent

PositionOf = Callable[[Value, Spot], tuple[Operand, Operand]]
"""The position of a spot of a step in the matrix: along the depth, and along the rows or columns."""


def both_sides(
    match: TwoSided,
    heads: Heads,
    head: Head,
    tile: TensorTile,
    own: Value,
    corner: tuple[Value, Value],
    sizes: tuple[int, int, int],
) -> tuple[TensorSide, TensorSide]:
    """A head's two matrices, for a tile whose first row and column are `corner`. The sizes are rows, columns and depth; each may
    be dynamic."""
    (top, first), (rows, columns, depth) = corner, sizes
    deep = covered_by(depth, tile.slices * tile.depth)
    left = viewed_side(
        heads.read(match.left), head, tile, own, tile.rows, (depth, rows), (deep, covered_by(rows, tile.rows)),
        lambda step, spot: (step * tile.depth + spot.k, top + spot.at), is_left=True,
    )
    right = viewed_side(
        heads.read(match.right), head, tile, own, tile.columns, (depth, columns), (deep, covered_by(columns, tile.columns)),
        lambda step, spot: (step * tile.depth + spot.k, first + spot.at),
    )
    return left, right


def covered_by(size: int, each: int) -> int | None:
    """The size, rounded up to a multiple of `each`; None if it is dynamic."""
    return None if isinstance(size, Extent) else -(-size // each) * each


def viewed_side(
    view: View,
    head: Head,
    tile: SlicedTile,
    own: Value,
    extent: int,
    sizes: tuple[int, int],
    covered: tuple[int | None, int | None],
    position_of: PositionOf,
    is_left: bool = False,
) -> TensorSide:
    """A head's matrix, with `extent` rows or columns of the tile's depth per step. `sizes` are its depth and the number of its
    rows or columns, `covered` what all steps of all tiles cover of both (None if dynamic); elements outside the matrix count as
    zero. In shared memory bytes are adjacent along the depth; if they are not in memory they are read one by one."""
    deep, beside = (-1, -2) if is_left else (-2, -1)
    is_along, is_bytes = view.strides.steps[deep] == 1, view.buffer.element.bits == 8
    axis, size = (deep, sizes[0]) if is_along else (beside, sizes[1])
    lanes = neighbours(view, axis, size) if is_along or not is_bytes else 1
    listed = spots(tile, own, extent, lanes, is_along)

    source = source_in(view, head, sizes, covered, position_of, is_left)
    return TensorSide(view.buffer, extent, tile.depth, listed, lanes, source, is_along or is_bytes)


def source_in(
    view: View,
    head: Head,
    sizes: tuple[int, int],
    covered: tuple[int | None, int | None],
    position_of: PositionOf,
    is_left: bool = False,
) -> Callable[[Value, Spot], Source]:
    """The source of a spot's elements in a head's matrix, by its depth and number of rows or columns, and by what all steps
    of all tiles cover of both."""

    def source(step: Value, spot: Spot) -> Source:
        k, at = position_of(step, spot)
        tests = [as_index(i) < size for i, size, most in zip((k, at), sizes, covered, strict=True) if most != size]
        position = view.at(head, at, k) if is_left else view.at(head, k, at)
        return Source((position,), all_of(tests) if tests else None)

    return source


def neighbours(view: View, axis: int, size: int) -> int:
    """The most adjacent elements along an axis of `size` that can be copied at once: aligned for any head and any line."""
    steps = view.strides.steps
    if steps[axis] != 1:
        return 1
    others = [step for i, step in enumerate(steps) if i != len(steps) + axis]
    return widest_copy(view.buffer.element.bits // 8, size, view.strides.offset, *others)
