"""Products of two values on the tensor cores of a GPU, single or batched, with their epilogue: one block per tile.

Reshapes, transposes and scalings around the product become strides and a factor, as in `product.py`."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import Value, element_named
from partita.accelerators.tvm.kernels.language.values import parts_of
from partita.accelerators.tvm.kernels.matmul.product import find_value_product
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.gpu_product import own_thread
from partita.accelerators.tvm.kernels.shared.gpu_tile import (
    TensorTile,
    fastest,
    tensor_tiles,
    usual_work,
)
from partita.accelerators.tvm.kernels.shared.heads import Heads, found_in
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.operands import TwoSided
from partita.accelerators.tvm.kernels.shared.tensor_product import TensorProduct, has_tensor_cores
from partita.accelerators.tvm.kernels.shared.viewed_sides import both_sides
from partita.accelerators.tvm.machine.machine import Machine


def gpu_value_product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body that is one product of an element type for tensor cores; None for any other body."""
    match = found_in(body, "MatMul", find_value_product)
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
