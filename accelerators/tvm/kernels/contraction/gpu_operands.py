"""The operands of a product on a GPU: what the threads of a block fetch into shared memory in each step.

A constant is packed tile by tile, so that a block reads one contiguous stream. Matrices of several heads are read in place in any
orientation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.bodies.stored_types import as_stored
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import WIDTH, GpuTile, TensorTile, pitch, round_to_tf32
from partita.accelerators.tvm.kernels.contraction.heads import Head, View
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value, all_of
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.language.warp_intrinsics import COPIES, LINE
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple
from partita.graph.types import Array, numpy_dtype


@attrs.frozen(slots=True, eq=False)
class Spot:
    """A place in shared memory that a thread fills in every step: elements that are adjacent along the tile, or along the
    depth."""

    k: Operand
    """Its position along the depth."""
    at: Operand
    """Its position along the tile."""
    is_own: Value | None = None
    """Condition that the thread fills it; None if every thread does."""


@attrs.frozen(slots=True, eq=False)
class Source:
    """The place in memory of a spot's elements."""

    position: tuple[Operand, ...]
    is_inside: Value | None = None
    """Condition that they are inside the matrix, else the side's `fill` is used. None: always inside."""


@attrs.frozen(slots=True, eq=False)
class Side:
    """The left or the right operand of a tile, and its loads."""

    buffer: Buffer
    extent: int
    """Rows or columns of the tile."""
    depth: int
    """Depth of a step."""
    spots: tuple[Spot, ...]
    """The places that a thread fills in every step."""
    lanes: int
    """Number of elements of a spot."""
    source: Callable[[Value, Spot], Source]
    """The source in memory of a spot's elements in a step."""
    turned: bool
    """True if the elements of a spot are adjacent along the depth. In shared memory they are so for tensor cores only."""
    is_rounded: bool = False
    """True if the elements in memory are already rounded for the instruction."""
    fill: int = 0
    """The value of elements outside the matrix."""
    change: Callable[[Value, Source], Value] | None = None
    """Transforms the elements of a spot, in their type for computing, before they are multiplied; None leaves them."""

    @property
    def bytes(self) -> int:
        """Bytes per element."""
        return self.buffer.element.bits // 8

    @property
    def is_copied(self) -> bool:
        """True if tensor cores multiply the elements of a spot as copied, asynchronously."""
        return self.change is None and self.lanes * self.bytes in COPIES

    @property
    def pitch(self) -> int:
        """Distance in shared memory from one line to the next, for tensor cores."""
        return pitch(self.depth if self.turned else self.extent, self.bytes, self.turned)

    @property
    def size(self) -> int:
        """Elements of a step in shared memory, for tensor cores."""
        return (self.extent if self.turned else self.depth) * self.pitch

    def at(self, k: Operand, position: Operand) -> Operand:
        """Position in that memory of the element at a position along the depth and along the tile."""
        return position * self.pitch + k if self.turned else k * self.pitch + position


def spots(tile: GpuTile, own: Value, extent: int, lanes: int, turned: bool) -> tuple[Spot, ...]:
    """The spots that each thread of a slice fills: neighbouring threads get neighbouring spots, along the depth if elements are
    contiguous that way in memory (`turned`), else along the tile."""
    threads, line = tile.slice_threads, (tile.depth if turned else extent) // lanes
    count = line * (extent if turned else tile.depth)
    listed = []
    for first in range(0, count, threads):
        if threads % line == 0:  # Then a thread stays at one position of its line.
            along, line_number = own % line, own // line + first // line
        else:
            along, line_number = (own + first) % line, (own + first) // line
        is_own = None if first + threads <= count else own + first < count
        along = along * lanes
        listed.append(Spot(along, line_number, is_own) if turned else Spot(line_number, along, is_own))
    return tuple(listed)


def widest_copy(size: int, *counts: int) -> int:
    """The most adjacent elements that can be copied at once, for elements of `size` bytes at multiples of these counts."""
    return next((copied // size for copied in COPIES if all(is_multiple(count * size, copied) for count in counts)), 1)


def widest_read(tile: GpuTile, buffer: Buffer, *counts: int) -> int:
    """The most adjacent elements at multiples of these counts that a thread fetches at once."""
    if isinstance(tile, TensorTile):
        return widest_copy(buffer.element.bits // 8, *counts)
    return WIDTH if all(is_multiple(count, WIDTH) for count in counts) else 1


@attrs.frozen(slots=True)
class PackedTiles:
    """A constant operand, laid out as blocks read it: tile after tile, each step after step."""

    tile: GpuTile
    extent: int
    """Rows or columns of a tile along the constant."""
    groups: int
    """Number of matrices."""
    widths: Sequence[int]
    """Rows or columns of each part of a matrix; a part begins with a new tile."""
    depth: int
    """Number of products in each sum; parts may have fewer."""

    @property
    def counts(self) -> list[int]:
        """Number of tiles of each part."""
        return [-(-width // self.extent) for width in self.widths]

    @property
    def count(self) -> int:
        """Number of tiles of a matrix."""
        return sum(self.counts)

    @property
    def steps(self) -> int:
        """Number of steps of all slices together."""
        return self.tile.all_steps(self.depth)

    @property
    def is_whole(self) -> bool:
        """True if the steps are exactly as deep as the matrices."""
        return self.steps * self.tile.depth == self.depth

    @property
    def size(self) -> int:
        """Number of elements of a tile."""
        return self.steps * self.tile.depth * self.extent

    @property
    def numbers(self) -> int:
        """Number of elements of all tiles."""
        return self.groups * self.count * self.size

    def pack(self, groups: Iterable[Iterable[Array]], dtype: str, factor: float = 1.0) -> Array:
        """The parts [depth, line] of each matrix, times a factor, in tiles [step, depth, line], zero-padded; for tensor cores
        [step, line, depth], float32 rounded as these do."""
        is_turned, sizes = isinstance(self.tile, TensorTile), (self.tile.depth, self.extent)
        packed = new_weight((self.groups, self.count, self.steps, *(sizes[::-1] if is_turned else sizes)), numpy_dtype(dtype))
        packed[...] = np.zeros((), packed.dtype)
        for tiles, parts in zip(packed.swapaxes(-1, -2) if is_turned else packed, groups, strict=True):
            columns = [part[:, first : first + self.extent] for part in parts for first in range(0, part.shape[1], self.extent)]
            for into, matrix in zip(tiles, columns, strict=True):
                _lay_steps(into, as_stored(matrix, dtype))
        flat = (packed if factor == 1.0 else packed * np.float32(factor)).reshape(-1)
        return round_to_tf32(flat) if is_turned and flat.dtype == np.float32 else flat

    def side(self, own: Value, buffer: Buffer, number: Value) -> Side:
        """The operand for the tile of this number."""
        is_turned, first = isinstance(self.tile, TensorTile), number * self.size
        if is_turned:
            lanes = LINE * 8 // buffer.element.bits
        else:
            lanes = WIDTH if self.extent % WIDTH == 0 else 1
        depth, extent = self.tile.depth, self.extent

        def source(step: Value, spot: Spot) -> Source:
            (line, each), along = ((spot.at, depth), spot.k) if is_turned else ((spot.k, extent), spot.at)
            return Source((first + step * (depth * extent) + line * each + along,))

        listed = spots(self.tile, own, extent, lanes, is_turned)
        return Side(buffer, extent, depth, listed, lanes, source, is_turned, is_rounded=True)


def _lay_steps(into: Array, matrix: Array) -> None:
    """Fill [step, depth, position] with a matrix of the full depth, from position 0 on; the rest is left unchanged."""
    deep, count = into.shape[1], matrix.shape[1]
    whole, rest = divmod(len(matrix), deep)
    into[:whole, :, :count] = matrix[: whole * deep].reshape(whole, deep, count)
    if rest:
        into[whole, :rest, :count] = matrix[whole * deep :]


PositionOf = Callable[[Value, Spot], tuple[Operand, Operand]]
"""The position of a spot of a step in the matrix: along the depth, and along the rows or columns."""


def viewed_side(
    view: View,
    head: Head,
    tile: GpuTile,
    own: Value,
    extent: int,
    sizes: tuple[int, int],
    position_of: PositionOf,
    is_left: bool = False,
) -> Side:
    """A head's matrix, with `extent` rows or columns of the tile's depth per step. `sizes` are its depth and the number of its
    rows or columns, each perhaps dynamic; elements outside the matrix count as zero. Tensor cores take bytes that are adjacent
    along the depth; if they are not in memory they are read one by one."""
    deep, beside = (-1, -2) if is_left else (-2, -1)
    is_along, is_bytes, has_cores = view.strides.steps[deep] == 1, view.buffer.element.bits == 8, isinstance(tile, TensorTile)
    lanes = neighbours(view, *((deep, sizes[0]) if is_along else (beside, sizes[1])))
    if not has_cores:
        is_static = not any(isinstance(step, Extent) for step in view.strides.steps)
        lanes = WIDTH if lanes >= WIDTH and is_static else 1
    elif is_bytes and not is_along:
        lanes = 1
    pieces = zip(sizes, (tile.slices * tile.depth, extent), strict=True)
    bounds = [size if isinstance(size, Extent) or size % each else None for size, each in pieces]

    def source(step: Value, spot: Spot) -> Source:
        k, at = position_of(step, spot)
        tests = [as_index(i) < bound for i, bound in zip((k, at), bounds, strict=True) if bound is not None]
        position = view.at(head, at, k) if is_left else view.at(head, k, at)
        return Source((position,), all_of(tests) if tests else None)

    is_turned = is_along or (is_bytes and has_cores)
    return Side(view.buffer, extent, tile.depth, spots(tile, own, extent, lanes, is_along), lanes, source, is_turned)


def neighbours(view: View, axis: int, size: int) -> int:
    """The most adjacent elements along an axis of `size` that can be copied at once: aligned for any head and any line."""
    steps = view.strides.steps
    if steps[axis] != 1:
        return 1
    others = [step for i, step in enumerate(steps) if i != len(steps) + axis]
    return widest_copy(view.buffer.element.bits // 8, size, view.strides.offset, *others)
