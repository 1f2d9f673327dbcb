"""Products on a GPU, with their epilogue: one block per tile. A constant matrix is packed tile by tile; of two values, single or
batched, reshapes, transposes and scalings become strides and a factor, as in `product.py`."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.contraction.gpu_operands import (
    PackedTiles,
    Side,
    Source,
    Spot,
    spots,
    viewed_side,
    widest_read,
)
from partita.accelerators.tvm.kernels.contraction.gpu_product import Points, has_tensor_cores, own_thread, write_tile
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import (
    BlockTile,
    TensorTile,
    Work,
    fastest,
    tensor_tiles,
    tiles,
    usual_work,
)
from partita.accelerators.tvm.kernels.contraction.heads import Heads
from partita.accelerators.tvm.kernels.contraction.matmul.gemm import find_product
from partita.accelerators.tvm.kernels.contraction.matmul.product import find_value_product
from partita.accelerators.tvm.kernels.contraction.operands import Matrix, TwoSided, found_in
from partita.accelerators.tvm.kernels.language import Buffer, Value, all_of, element_named, float32, int32
from partita.accelerators.tvm.kernels.language.values import parts_of
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, GradualPack
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple

MANY = 512
"""Number of rows that the cut assumes if it is dynamic."""

FEW = 8
"""Fewer rows than this use less than half of the sums of a tensor core instruction."""


def gpu_gemm(body: Body, machine: Machine) -> Draft | None:
    """The kernel for values times a constant matrix; None for any other body. With few rows most sums of tensor cores are unused,
    so that plain threads are a candidate too."""
    match = find_product(body)
    if match is None:
        return None
    types = [element_of(body.graph.inputs[i][0]) for i in (match.left, match.right)]
    elements, gpu = [element_named(dtype) for dtype in types], machine.gpu
    size, rows = elements[0].bits // 8, MANY if isinstance(match.rows, Extent) else match.rows
    is_multiplied = has_tensor_cores(machine, *elements)
    listed: list[BlockTile | TensorTile] = [*tensor_tiles(gpu, size)] if is_multiplied else []
    if not is_multiplied or rows < FEW:
        listed += tiles(gpu)
    tile = fastest(listed, [Work(rows, match.columns, match.depth, bytes=size)], gpu)
    right = PackedTiles(tile, tile.columns, 1, (match.columns,), match.depth)
    writing = match.kernel(body, right.numbers)
    kernel, bands = writing.kernel, parts_of(match.rows, tile.rows)
    with kernel.launch((right.count, bands, 1), tile.threads) as (block, band, _, thread):
        own, top, first = own_thread(tile, thread), band * tile.rows, block * tile.columns
        left = _rows_side(writing.left, tile, own, top, (match.rows, match.depth), right.is_whole)

        def store(total: Value, row: Value, column: Value) -> None:
            writing.writer.store(total, (top + row, first + column))

        bounds = tile.bounds(match.rows, match.columns, top, first)
        sides = left, right.side(own, writing.right, block)
        write_tile(kernel, tile, thread, sides, tile.steps(match.depth), store, bounds)
    name = "gpu_gemm_on_tensor_cores" if isinstance(tile, TensorTile) else "gpu_gemm"
    pack = GradualPack(lambda array: right.pack([[match.matrix(array)]], types[1], match.factor))
    return writing.problem.draft(kernel, name, {match.right: pack})


def _rows_side(
    left: Buffer, tile: BlockTile | TensorTile, own: Value, top: Value, sizes: tuple[int, int], is_whole: bool
) -> Side:
    """The left side: neighbouring threads read along the depth, which is contiguous. `is_whole` is true if the steps end with
    it."""
    rows, depth = sizes
    lanes = widest_read(tile, left, depth)

    def source(step: Value, spot: Spot) -> Source:
        k, row = step * tile.depth + spot.k, top + spot.at
        tests = [] if is_whole else [k < depth]
        tests += [] if is_multiple(rows, tile.rows) else [row < rows]
        return Source((row, k), all_of(tests) if tests else None)

    return Side(left, tile.rows, tile.depth, spots(tile, own, tile.rows, lanes, turned=True), lanes, source, turned=True)


def gpu_value_product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body that is one product of an element type for tensor cores; None for any other body."""
    match = found_in(body, find_value_product)
    if match is None or not has_tensor_cores(machine, *(element_named(element_of(side.source)) for side in match.operands)):
        return None
    return draft_values(match, Heads.of(body, "product", shape_of(match.root[0])[:-2]), machine, "gpu_product")


def draft_values(
    match: TwoSided,
    heads: Heads,
    machine: Machine,
    schedule: str,
    scale: Value | None = None,
    points_of: Callable[[], Points] = lambda: (None, None),
) -> Draft:
    """The kernel for a product of two values, a block for each tile of each head, on tensor cores if these multiply the element
    types. Rows, columns and depth may be dynamic. Bytes may have zero points, and their sums a scale; threads without such cores
    multiply bytes only."""
    kernel, gpu, elements = heads.kernel, machine.gpu, [heads.read(side).buffer.element for side in match.operands]
    (rows, columns), depth, size = shape_of(match.root[0])[-2:], shape_of(match.left.value)[-1], elements[0].bits // 8
    has_cores = has_tensor_cores(machine, *elements)
    listed = list[BlockTile | TensorTile](tensor_tiles(gpu, size) if has_cores else tiles(gpu))
    tile = fastest(listed, [usual_work(rows, columns, depth, heads.count, size)], gpu)
    blocks, bands, steps = parts_of(columns, tile.columns), parts_of(rows, tile.rows), parts_of(depth, tile.slices * tile.depth)
    result, wanted = heads.written(match.result, match.after), (match.chain or (match.root,))[-1][0]
    finished = heads.chain(match.chain, match.root[0], wanted, match.left.factor * match.right.factor, rows, columns)
    with kernel.launch((blocks, bands, heads.count), tile.threads) as (block, band, number, thread):
        head, own = heads.head(number), own_thread(tile, thread)
        top, first = kernel.name_value("top", band * tile.rows), kernel.name_value("first", block * tile.columns)
        points = points_of()
        both = None if points[0] is None or points[1] is None else points[0] * points[1] * depth

        def store(total: Value, row: Value, column: Value) -> None:
            total = total + both if both is not None and isinstance(tile, TensorTile) else total
            value, at = total if scale is None else total.cast(float32) * scale, (top + row, first + column)
            write(result.buffer, (result.at(head, *at),), finished(value, head, *at))

        def side(matrix: Matrix, extent: int, edge: Value, count: int, point: Value | None) -> Side:
            view, is_left = heads.read(matrix), matrix is match.left
            one = viewed_side(
                view, head, tile, own, extent, (depth, count),
                lambda step, spot: (step * tile.depth + spot.k, edge + spot.at), is_left,
            )
            if point is None or isinstance(tile, TensorTile):
                return one
            return attrs.evolve(one, change=lambda numbers, source: numbers - point.spread(one.lanes))

        left = side(match.left, tile.rows, top, rows, points[0])
        right = side(match.right, tile.columns, first, columns, points[1])
        bounds = tile.bounds(rows, columns, top, first)
        write_tile(kernel, tile, thread, (left, right), steps, store, bounds, int32, points)
    return heads.problem.draft(kernel, schedule + ("_on_tensor_cores" if has_cores else ""))
