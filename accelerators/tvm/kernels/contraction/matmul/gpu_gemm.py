"""Products on a GPU, with their epilogue: one block per tile. A constant matrix is packed tile by tile; of two values, single or
batched, reshapes, transposes and scalings become strides and a factor, as in `product.py`."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.bodies.element_types import as_stored
from partita.accelerators.tvm.kernels.contraction.gpu_product import (
    Side,
    Spot,
    TiledProduct,
    lay_steps,
    new_tiles,
    own_thread,
    packed_side,
    spots,
)
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import (
    WIDTH,
    BlockTile,
    TensorTile,
    Work,
    fastest,
    round_to_tf32,
    tensor_tiles,
    tiles,
    usual_work,
)
from partita.accelerators.tvm.kernels.contraction.heads import Heads
from partita.accelerators.tvm.kernels.contraction.matmul.gemm import ConstantProduct as Match
from partita.accelerators.tvm.kernels.contraction.matmul.gemm import find_product
from partita.accelerators.tvm.kernels.contraction.matmul.product import find_value_product
from partita.accelerators.tvm.kernels.contraction.operands import TwoSided, found_in
from partita.accelerators.tvm.kernels.contraction.tensor_product import (
    Source,
    TensorProduct,
    TensorSide,
    both_sides,
    has_tensor_cores,
    packed_tensor_side,
    widest_copy,
)
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value, all_of, element_named, if_inside
from partita.accelerators.tvm.kernels.language.values import parts_of
from partita.accelerators.tvm.kernels.shared.element_access import read, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, GradualPack
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple
from partita.graph.types import Array, numpy_dtype

MANY = 512
"""Number of rows that the cut assumes if it is dynamic."""

FEW = 8
"""Fewer rows than this use less than half of the sums of a tensor core instruction."""


def gpu_gemm(body: Body, machine: Machine) -> Draft | None:
    """The kernel for values times a constant matrix; None for any other body."""
    match = find_product(body)
    if match is None:
        return None
    layer = _layer(match, body, machine)
    writing = match.kernel(body, layer.numbers)
    kernel, tile = writing.kernel, layer.tile
    with kernel.launch((*layer.blocks, 1), tile.threads) as (block, band, _, thread):
        own = own_thread(tile, thread)
        first = block * (layer.steps * tile.depth * tile.columns)
        bounds = tile.bounds(match.rows, match.columns, band * tile.rows, block * tile.columns)

        def store(total: Value, row: Value, column: Value) -> None:
            writing.writer.store(total, (band * tile.rows + row, block * tile.columns + column))

        if isinstance(tile, TensorTile):
            left = layer.copied_side(writing.left, own, band)
            right = packed_tensor_side(tile, own, tile.columns, writing.right, first)
            TensorProduct(kernel, tile, thread, left, right).write(tile.steps(match.depth), store, bounds)
        else:
            sides = layer.rows_side(writing.left, own, band), packed_side(tile, own, tile.columns, writing.right, first)
            TiledProduct(kernel, tile, thread, *sides).write(tile.steps(match.depth), store, bounds)
    dtype = element_of(body.graph.inputs[match.right][0])
    name = "gpu_gemm_on_tensor_cores" if isinstance(tile, TensorTile) else "gpu_gemm"
    return writing.problem.draft(kernel, name, {match.right: GradualPack(lambda array: layer.pack(array, dtype))})


def _layer(match: Match, body: Body, machine: Machine) -> _TiledProduct:
    """The product and its cut, for tensor cores if they support the element types. With few rows most of their sums are unused,
    so that plain threads are a candidate too."""
    elements = [element_named(element_of(body.graph.inputs[i][0])) for i in (match.left, match.right)]
    rows, size, gpu = MANY if isinstance(match.rows, Extent) else match.rows, elements[0].bits // 8, machine.gpu
    work, listed = Work(rows, match.columns, match.depth, bytes=size), list[BlockTile | TensorTile]()
    is_multiplied = has_tensor_cores(machine, *elements)
    if is_multiplied:
        listed += tensor_tiles(gpu, size)
    if not is_multiplied or rows < FEW:
        listed += tiles(gpu)
    return _TiledProduct(match, fastest(listed, [work], gpu))


@attrs.frozen(slots=True, eq=False)
class _TiledProduct:
    """A product and its cut."""

    match: Match
    tile: BlockTile | TensorTile

    @property
    def steps(self) -> int:
        """Number of steps of all slices together."""
        return self.tile.all_steps(self.match.depth)

    @property
    def blocks(self) -> tuple[int, Operand]:
        """Number of tiles along the columns, and along the rows."""
        return -(-self.match.columns // self.tile.columns), parts_of(self.match.rows, self.tile.rows)

    @property
    def numbers(self) -> int:
        """Number of elements of the packed matrix."""
        return self.blocks[0] * self.steps * self.tile.depth * self.tile.columns

    def pack(self, array: Array, dtype: str) -> Array:
        """The constant matrix [tile, step, depth, column], zero-padded to whole tiles; for tensor cores [tile, step, column,
        depth]."""
        matrix, width = self.match.matrix(array), self.tile.columns
        packed, tiles = new_tiles(self.tile, (self.blocks[0], self.steps), width, numpy_dtype(dtype))
        for block, steps in enumerate(tiles):
            lay_steps(steps, as_stored(matrix[:, block * width : (block + 1) * width], dtype))
        scaled = self.match.scaled(packed)
        return round_to_tf32(scaled) if isinstance(self.tile, TensorTile) and scaled.dtype == np.float32 else scaled

    def rows_side(self, left: Buffer, own: Value, band: Value) -> Side:
        """The left side, for plain threads: neighbouring threads read along the depth, which is contiguous."""
        match, tile = self.match, self.tile
        lanes = WIDTH if match.depth % WIDTH == 0 else 1
        inside = self._inside()

        def number(step: Value, spot: Spot) -> Value:
            k, row = step * tile.depth + spot.k, band * tile.rows + spot.at
            tests = inside(k, row)
            numbers = read(left, (row, k), lanes)
            return if_inside(all_of(tests), numbers, 0.0) if tests else numbers

        return Side(tile.rows, spots(tile, own, tile.rows, lanes, turned=True), lanes, number, turned=True)

    def copied_side(self, left: Buffer, own: Value, band: Value) -> TensorSide:
        """The left side for tensor cores."""
        tile, lanes = self.tile, widest_copy(left.element.bits // 8, self.match.depth)
        inside = self._inside()

        def source(step: Value, spot: Spot) -> Source:
            k, row = step * tile.depth + spot.k, band * tile.rows + spot.at
            tests = inside(k, row)
            return Source((row, k), all_of(tests) if tests else None)

        return TensorSide(
            left, tile.rows, tile.depth, spots(tile, own, tile.rows, lanes, turned=True), lanes, source, turned=True
        )

    def _inside(self) -> Callable[[Value, Value], list[Value]]:
        """The function that returns the conditions under which (k, row) lies inside the left matrix."""
        match, tile = self.match, self.tile
        is_whole = self.steps * tile.depth == match.depth

        def tests(k: Value, row: Value) -> list[Value]:
            listed = [] if is_whole else [k < match.depth]
            return listed + ([] if is_multiple(match.rows, tile.rows) else [row < match.rows])

        return tests


def gpu_value_product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body that is one product of an element type for tensor cores; None for any other body."""
    match = found_in(body, find_value_product)
    elements = [element_named(element_of(side.source)) for side in match.operands] if match is not None else []
    if match is None or not has_tensor_cores(machine, *elements):
        return None
    sizes = *shape_of(match.root[0]), shape_of(match.left.value)[-1]
    *batch, rows, columns, depth = sizes
    heads = Heads.of(body, "product", tuple(batch))
    size = elements[0].bits // 8
    work, listed = usual_work(rows, columns, depth, heads.count, size), list(tensor_tiles(machine.gpu, size))
    tile = fastest(listed, [work], machine.gpu)
    _write(match, heads, tile, (rows, columns, depth))
    return heads.problem.draft(heads.kernel, "gpu_product_on_tensor_cores")


def _write(match: TwoSided, heads: Heads, tile: TensorTile, sizes: tuple[int, int, int]) -> None:
    """Launches a block for each tile of each head. Rows, columns and depth may be dynamic."""
    kernel, (rows, columns, depth) = heads.kernel, sizes
    blocks, bands, steps = parts_of(columns, tile.columns), parts_of(rows, tile.rows), parts_of(depth, tile.slices * tile.depth)
    result, wanted = heads.written(match.result, match.after), (match.chain or (match.root,))[-1][0]
    with kernel.launch((blocks, bands, heads.count), tile.threads) as (block, band, number, thread):
        head, own = heads.head(number), own_thread(tile, thread)
        top, first = kernel.name_value("top", band * tile.rows), kernel.name_value("first", block * tile.columns)
        sides = both_sides(match, heads, head, tile, own, (top, first), sizes)
        finished = heads.chain(match.chain, match.root[0], wanted, match.left.factor * match.right.factor, rows, columns)

        def store(total: Value, row: Value, column: Value) -> None:
            row, column = top + row, first + column
            write(result.buffer, (result.at(head, row, column),), finished(total, head, row, column))

        TensorProduct(kernel, tile, thread, *sides).write(steps, store, tile.bounds(rows, columns, top, first))
