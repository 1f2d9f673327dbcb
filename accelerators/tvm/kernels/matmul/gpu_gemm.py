"""Products by a constant matrix on a GPU, with what follows them: a block for each tile, the constant as blocks read it."""

from __future__ import annotations

import attrs
import numpy as np

from accelerators.arrays.sharing import new_weight
from accelerators.tvm.bodies.body import Body, element_of
from accelerators.tvm.bodies.stored import as_stored
from accelerators.tvm.kernels.language import Buffer, Value, all_of, if_inside
from accelerators.tvm.kernels.language.values import as_index
from accelerators.tvm.kernels.matmul.gemm import Product as Match
from accelerators.tvm.kernels.matmul.gemm import find_product
from accelerators.tvm.kernels.shared.choice import choose
from accelerators.tvm.kernels.shared.draft import Draft, GradualPack
from accelerators.tvm.kernels.shared.gpu_product import Product, Side, Spot, own_thread, packed_side, spots
from accelerators.tvm.kernels.shared.gpu_tile import WIDTH, BlockTile, Work, cycles, tiles
from accelerators.tvm.kernels.shared.numbers import read
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.sizes.extent import Extent
from graph.types import Array, numpy_dtype


def gpu_gemm(body: Body, machine: Machine) -> Draft | None:
    """The kernel for values times a constant matrix; None for any other body."""
    match = find_product(body)
    if match is None or isinstance(match.rows, Extent):
        return None
    work = Work(match.rows, match.columns, match.depth)
    layer = _Layer(match, choose("tile", tiles(machine.gpu), lambda tile: cycles(tile, work, machine.gpu)))
    writing = match.kernel(body, layer.numbers)
    kernel, tile = writing.kernel, layer.tile
    with kernel.launch((*layer.blocks, 1), tile.threads) as (block, band, _, thread):
        own = own_thread(tile, thread)
        left = layer.rows_side(writing.left, own, band)
        right = packed_side(tile, own, tile.columns, writing.right, block * (layer.steps * tile.depth * tile.columns))
        bounds = (
            None if match.rows % tile.rows == 0 else as_index(match.rows) - band * tile.rows,
            None if match.columns % tile.columns == 0 else as_index(match.columns) - block * tile.columns,
        )

        def store(total: Value, row: Value, column: Value) -> None:
            writing.writer.store(total, (band * tile.rows + row, block * tile.columns + column))

        Product(kernel, tile, thread, left, right).write(tile.steps(match.depth), store, bounds)
    dtype = element_of(body.graph.inputs[match.right][0])
    return writing.problem.draft(kernel, "gpu_gemm", {match.right: GradualPack(lambda array: layer.pack(array, dtype))})


@attrs.frozen(slots=True, eq=False)
class _Layer:
    """One product and its cut."""

    match: Match
    tile: BlockTile

    @property
    def steps(self) -> int:
        """The steps of all slices together."""
        return self.tile.steps(self.match.depth) * self.tile.slices

    @property
    def blocks(self) -> tuple[int, int]:
        """The tiles along the columns and along the rows."""
        return -(-self.match.columns // self.tile.columns), -(-self.match.rows // self.tile.rows)

    @property
    def numbers(self) -> int:
        """How many numbers the packed matrix is."""
        return self.blocks[0] * self.steps * self.tile.depth * self.tile.columns

    def pack(self, array: Array, dtype: str) -> Array:
        """The constant matrix [tile, depth, column], with zeros where a tile reaches beyond."""
        matrix, width = self.match.matrix(array), self.tile.columns
        packed = new_weight((self.blocks[0], self.steps * self.tile.depth, width), numpy_dtype(dtype))
        packed[...] = np.zeros((), packed.dtype)
        for block in range(self.blocks[0]):
            part = as_stored(matrix[:, block * width : (block + 1) * width], dtype)
            packed[block, : self.match.depth, : part.shape[1]] = part
        return self.match.scaled(packed)

    def rows_side(self, left: Buffer, own: Value, band: Value) -> Side:
        """The side of the values: neighbouring threads read along the depth, as the numbers stand."""
        match, tile = self.match, self.tile
        lanes = WIDTH if match.depth % WIDTH == 0 else 1
        is_whole = self.steps * tile.depth == match.depth

        def number(step: Value, spot: Spot) -> Value:
            k, row = step * tile.depth + spot.k, band * tile.rows + spot.at
            tests = [] if is_whole else [k < match.depth]
            if match.rows % tile.rows:
                tests.append(row < match.rows)
            numbers = read(left, (row, k), lanes)
            return if_inside(all_of(tests), numbers, 0.0) if tests else numbers

        return Side(tile.rows, spots(tile, own, tile.rows, lanes, turned=True), lanes, number, turned=True)
