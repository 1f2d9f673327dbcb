"""Products of two quantized matrices, or many such products at once, on a GPU, with their epilogues.

Tensor cores multiply bytes as stored. Otherwise they are converted to 32-bit integers, minus their zero point, when they are
read. Sums are exact either way. Reshapes and transposes before and after are folded into reads and writes, as in `matmul.py`."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.contraction.gpu_product import Side, Spot, TiledProduct, own_thread, spots
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import (
    WIDTH,
    BlockTile,
    TensorTile,
    fastest,
    tensor_tiles,
    tiles,
    usual_work,
)
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads, View
from partita.accelerators.tvm.kernels.contraction.operands import found_in
from partita.accelerators.tvm.kernels.contraction.quantized.matmul import SIGN, PairProduct, beside, find_pair_product
from partita.accelerators.tvm.kernels.contraction.tensor_product import (
    TensorProduct,
    both_sides,
    covered_by,
    has_tensor_cores,
    neighbours,
    source_in,
)
from partita.accelerators.tvm.kernels.language import Value, constant, float32, if_inside, int8, int32
from partita.accelerators.tvm.kernels.language.values import parts_of
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent


def gpu_pair_product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body of one product; None for any other body."""
    match = found_in(body, find_pair_product)
    if match is None:
        return None
    *batch, rows, columns = shape_of(match.root[0])
    depth = shape_of(match.left.value)[-1]
    heads = Heads.of(body, "quantized_pair", tuple(batch))
    elements = [heads.read(side).buffer.element for side in match.operands]
    listed = tensor_tiles(machine.gpu, 1) if has_tensor_cores(machine, *elements) else tiles(machine.gpu)
    tile = fastest(list[BlockTile | TensorTile](listed), [usual_work(rows, columns, depth, heads.count, 1)], machine.gpu)
    _write(match, heads, tile, (rows, columns, depth))
    return heads.problem.draft(heads.kernel, "gpu_quantized_pair" + ("_on_tensor_cores" if isinstance(tile, TensorTile) else ""))


def _write(match: PairProduct, heads: Heads, tile: BlockTile | TensorTile, sizes: tuple[int, int, int]) -> None:
    """Writes a block for each tile of each head. Rows, columns and depth may be dynamic."""
    kernel, (rows, columns, depth) = heads.kernel, sizes
    blocks, bands, steps = parts_of(columns, tile.columns), parts_of(rows, tile.rows), parts_of(depth, tile.slices * tile.depth)
    result, wanted = heads.written(match.result, match.after), (match.chain or (match.root,))[-1][0]
    finished, scale = heads.chain(match.chain, match.root[0], wanted, 1.0, rows, columns), beside(heads, match.scale, 0)
    with kernel.launch((blocks, bands, heads.count), tile.threads) as (block, band, number, thread):
        head, own = heads.head(number), own_thread(tile, thread)
        top, first = kernel.name_value("top", band * tile.rows), kernel.name_value("first", block * tile.columns)
        points = _point(match, heads, is_left=True), _point(match, heads, is_left=False)
        both = None if points[0] is None or points[1] is None else points[0] * points[1] * depth

        def store(total: Value, row: Value, column: Value) -> None:
            total = total + both if both is not None and isinstance(tile, TensorTile) else total
            value, at = total if scale is None else total.cast(float32) * scale, (top + row, first + column)
            write(result.buffer, (result.at(head, *at),), finished(value, head, *at))

        bounds = tile.bounds(rows, columns, top, first)
        if isinstance(tile, TensorTile):
            tensor_sides = both_sides(match, heads, head, tile, own, (top, first), sizes)
            TensorProduct(kernel, tile, thread, *tensor_sides, points).write(steps, store, bounds)
        else:
            left = _side(heads.read(match.left), head, tile, own, top, (depth, rows), points[0], is_left=True)
            right = _side(heads.read(match.right), head, tile, own, first, (depth, columns), points[1], is_left=False)
            TiledProduct(kernel, tile, thread, left, right, int32).write(steps, store, bounds)


def _point(match: PairProduct, heads: Heads, is_left: bool) -> Value | None:
    """The zero point of a matrix as its bytes are stored; None: zero. The op's is for unsigned bytes of the left matrix, and
    signed ones of the right."""
    matrix, name, shift = (match.left, "left", -SIGN) if is_left else (match.right, "right", SIGN)
    is_signed = heads.read(matrix).buffer.element is int8
    known = beside(heads, match.points, 0 if is_left else 1) if match.root.attrs[name] else None
    if is_signed == is_left:
        known = constant(shift, int32) if known is None else known + shift
    return None if known is None else heads.kernel.name_value(f"{name}_point", known)


def _side(
    view: View, head: Head, tile: BlockTile, own: Value, first: Value, sizes: tuple[int, int], point: Value | None, is_left: bool
) -> Side:
    """A head's matrix as an operand, with a tile's rows or columns from `first` on. `sizes` are its depth and the number of its
    rows or columns; elements outside count as zero."""
    deep, along = (-1, -2) if is_left else (-2, -1)
    turned, extent = view.strides.steps[deep] == 1, tile.rows if is_left else tile.columns
    beside = neighbours(view, deep if turned else along, sizes[0] if turned else sizes[1])
    lanes = WIDTH if beside >= WIDTH and not any(isinstance(step, Extent) for step in view.strides.steps) else 1
    covered = covered_by(sizes[0], tile.slices * tile.depth), covered_by(sizes[1], extent)

    sources = source_in(view, head, sizes, covered, lambda step, spot: (step * tile.depth + spot.k, first + spot.at), is_left)

    def number(step: Value, spot: Spot) -> Value:
        source = sources(step, spot)
        numbers = view.buffer.vector(lanes, *source.position).cast(int32)
        numbers = numbers if point is None else numbers - point.spread(lanes)
        return numbers if source.is_inside is None else if_inside(source.is_inside, numbers, 0)

    return Side(extent, spots(tile, own, extent, lanes, turned), lanes, number, turned)
