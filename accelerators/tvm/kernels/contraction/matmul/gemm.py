"""Product with a constant matrix, and its epilogue.

The matrix is packed into panels at compile time (`contraction/panels.py`). Pairs of a panel and a tile of rows are numbered panel
by panel, and each task takes an equal range of them, so that each weight is read by one core and any number of rows is balanced.
Only if the rows exceed a cache are they split into blocks, each of which runs over all panels.

If the result is narrower than a vector, as for a classifier of few classes, vectors run along the depth instead, and the constant
is stored column by column: each lane accumulates its own sum, and the lanes are added at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body, element_of
from partita.accelerators.tvm.kernels.contraction.amx import LANES, Left, Right, TileUnit, product_of_tiles, unit_for
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import (
    Instruction,
    instruction_for_rows,
    instruction_for_stored,
    instruction_in_tiles,
    widened,
)
from partita.accelerators.tvm.kernels.contraction.packing import PanelLayout
from partita.accelerators.tvm.kernels.contraction.panels import (
    MANY,
    UNROLLED,
    Panel,
    PanelTile,
    at_most,
    best_tile,
    by_size,
    open_tile,
    share_out,
)
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Registers, Value, float32, maximum, minimum
from partita.accelerators.tvm.kernels.language.types import element_named
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.element_access import HALVES, read, real_shape
from partita.accelerators.tvm.kernels.shared.elementwise import Numbers
from partita.accelerators.tvm.kernels.shared.epilogue import Epilogue, Writer, make_matrix_epilogue
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, GradualPack, Problem
from partita.accelerators.tvm.kernels.shared.loops import kept, pieces, start
from partita.accelerators.tvm.kernels.shared.row import join_lanes
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import MATRIX_PRODUCTS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import Array

WIDENING = 2
"""Registers that LLVM needs besides on Arm if a panel has elements of 16 bits. With tiles that leave none it spills sums: a step
took 1.4 times the cycles on neoverse-n1."""

CACHED = 1 << 20
"""Elements of the left matrix that a cache holds while panel after panel is multiplied."""


@attrs.frozen(slots=True, eq=False)
class ConstantProduct:
    """A product by a constant matrix, and its epilogue."""

    root: Node
    """MatMul or Gemm."""
    left: int
    """Index of the body's input that is the left matrix."""
    right: int
    """Index of the body's input that is the constant matrix."""
    rows: int
    """Number of rows of the left matrix."""
    columns: int
    """Number of columns of the right matrix."""
    turned: bool
    """True if the constant is stored transposed: (columns, depth)."""
    depth: int
    """Number of products in each sum."""
    after: Epilogue
    """The ops after it."""

    @property
    def dtype(self) -> str:
        """The element type of both matrices and of the result."""
        return element_of(self.root[0])

    def matrix(self, array: Array) -> Array:
        """The constant as a (depth, columns) matrix."""
        return array.T if self.turned else array

    @property
    def factor(self) -> float:
        """The Gemm's alpha, by which the packed matrix is multiplied. A matrix of two-byte elements is not scaled."""
        return float(np.float32(self.root.attrs.get("alpha", 1.0))) if self.dtype == "float32" else 1.0

    def kernel(self, body: Body, size: int) -> _GemmKernel:
        """A kernel with the body's arguments, the constant as a packed matrix of `size` elements."""
        problem = Problem.of(body)
        whole = (self.rows, self.columns)
        shapes: dict[int, tuple[int, ...]] = dict.fromkeys(range(len(problem.inputs)), (1,))
        shapes |= {**self.after.operands, self.left: (self.rows, self.depth), self.right: (size,)}
        kernel, inputs, outputs = problem.kernel("gemm", shapes, [whole] * len(problem.outputs))
        return _GemmKernel(problem, kernel, inputs[self.left], inputs[self.right], Writer(self.after, inputs, outputs))

    def layout(self, cut: Cut, dtype: str) -> PanelLayout:
        """The packed layout of the constant matrix, in this element type."""
        return PanelLayout(self.depth, self.columns, cut.tile.width, cut.instruction.group, self.turned, dtype, self.factor)


@attrs.frozen(slots=True)
class Cut:
    """The tiling of a product, and the instruction that accumulates it."""

    tile: PanelTile
    instruction: Instruction
    unit: TileUnit | None = None
    """The processor's matrix unit (AMX), if it is used."""

    @classmethod
    def of(cls, dtype: str, rows: int, columns: int, depth: int, machine: Machine) -> Cut | None:
        """The best cut for a product of these sizes and element type; None for fewer columns than a vector has.

        For a dynamic number of rows, the best over several typical numbers."""
        apart = depth * element_named(dtype).bits // 8
        is_open = isinstance(rows, Extent)
        unit, tiled = unit_for(dtype, MANY if is_open else rows, columns, depth, machine), instruction_in_tiles(dtype, machine)
        if unit is not None and tiled is not None:
            return cls._of_unit(unit, machine.lanes, tiled)
        taken = WIDENING if dtype in HALVES and machine.fuses else 0
        free = attrs.evolve(machine, registers=machine.registers - taken)
        if is_open:
            tile = open_tile(columns, free)
        else:
            threads = machine.threads_for(rows * columns * depth, MATRIX_PRODUCTS)
            tile = best_tile(rows, columns, free, threads=threads, apart=apart)
        several = None if is_open or tile is None else instruction_for_rows(dtype, depth, machine)
        even = tile.for_rows(machine.registers) if tile is not None and several is not None else None
        if even is not None and several is not None:
            return cls(even, several)
        return None if tile is None else cls(tile, instruction_for_stored(dtype, machine))

    @classmethod
    def _of_unit(cls, unit: TileUnit, lanes: int, instruction: Instruction) -> Cut:
        """The cut for the processor's matrix unit."""
        return cls(PanelTile(unit.high * unit.rows, unit.wide, lanes), instruction, unit)

    def heights(self) -> dict[int, Cut]:
        """Cuts into tiles of the same width and at most this height, by height: enough for any number of rows."""
        if self.unit is None:
            return {tile.rows: attrs.evolve(self, tile=tile) for tile in self.tile.heights(is_fetched=True)}
        cuts = [self._of_unit(unit, self.tile.lanes, self.instruction) for unit in self.unit.heights()]
        return {cut.tile.rows: cut for cut in cuts}

    @property
    def half_cycles(self) -> int:
        """Estimated half cycles of a step of a tile."""
        return self.tile.half_cycles if self.unit is None else self.unit.half_cycles


def gemm(body: Body, machine: Machine) -> Draft | None:
    """The kernel for values times a constant matrix; None for any other body."""
    match = find_product(body)
    if match is None:
        return None
    cut = Cut.of(match.dtype, match.rows, match.columns, match.depth, machine)
    if cut is None:
        return None
    layout = match.layout(cut, element_of(body.graph.inputs[match.right][0]))
    writing = match.kernel(body, layout.size)
    if isinstance(match.rows, Extent):
        # Tiles of equal height cover any number of rows; the height is chosen at run time. There is code for some heights up to
        # that of the best tile, enough for the last tile to overlap the one before by little.
        cuts = cut.heights()
        cycles_of = {height: lower.half_cycles for height, lower in cuts.items()}
        by_size(writing.kernel, match.rows, cycles_of, lambda height: _write(match, writing, cuts[height], layout, machine))
    else:
        # At opt-level 2 LLVM keeps the values of a long epilogue in registers and spills the sums of a large tile.
        writing.kernel.is_thorough = match.after.is_long
        _write(match, writing, cut, layout, machine)
    return writing.problem.draft(writing.kernel, "gemm", {match.right: GradualPack(layout)})


@attrs.frozen(slots=True, eq=False)
class _GemmKernel:
    problem: Problem
    kernel: Kernel
    left: Buffer
    right: Buffer
    writer: Writer


def find_product(body: Body) -> ConstantProduct | None:
    """The body's product; None unless its second matrix is a 2-D constant and all other ops can be fused.

    The constant may be transposed by an op."""
    roots = [node for node in body.ops if node.op in ops("matmul")]
    if len(roots) != 1 or roots[0].attrs.get("transA", 0):
        return None
    root = roots[0]
    given, turned = root.inputs[1], bool(root.attrs.get("transB", 0))
    assert root.inputs[0] is not None and given is not None
    before = before_turn(given.node)
    if before is not None:
        given, turned = before, not turned
    problem = Problem.of(body)
    left, right = problem.value_at(root.inputs[0]), problem.weight_at(given)
    shape, weight, output = real_shape(root.inputs[0]), real_shape(given), real_shape(root[0])
    if left is None or right is None or shape is None or weight is None:
        return None
    once = sum(entry == given for node in body.ops for entry in node.reads) == 1
    if not once or len(weight) != 2 or not output or 0 in (*weight, *shape) or output[-1] != weight[not turned]:
        return None
    biased = len(root.inputs) > 2 and root.inputs[2] is not None
    after = make_matrix_epilogue(body, root, _start, (2,) if biased else ())
    rows, columns, depth = math.prod(output[:-1]), output[-1], shape[-1]
    if after is None or after.operands.get(left, (rows, depth)) != (rows, depth):
        return None
    return ConstantProduct(root, left, right, rows, columns, turned, depth, after)


def before_turn(node: Node) -> NodeEntry | None:
    """The matrix that the node transposes; None if it is not a matrix Transpose."""
    given = node.inputs[0] if node.op == "Transpose" and not node.domain else None
    is_matrix = given is not None and len(real_shape(given) or ()) == 2
    return given if is_matrix and tuple(node.attrs.get("perm", (1, 0))) == (1, 0) else None


def _start(node: Node, x: Numbers) -> Value:
    """The product's element from its sum. For float32, alpha is already in the packed matrix."""
    alpha = 1.0 if element_of(node[0]) == "float32" else float(node.attrs.get("alpha", 1.0))
    total: Value = x[0] if alpha == 1.0 else x[0] * alpha
    if len(x) < 4 or x[3] is None:
        return total
    beta = float(node.attrs.get("beta", 1.0))
    return total + (x[3] if beta == 1.0 else x[3] * beta)


def _write(match: ConstantProduct, writing: _GemmKernel, cut: Cut, layout: PanelLayout, machine: Machine) -> None:
    """Writes the loops: over tasks, then pairs of a block of rows and a panel, then tiles."""
    tile, instruction, unit = cut.tile, cut.instruction, cut.unit
    kernel, rows, columns, depth = writing.kernel, match.rows, match.columns, match.depth
    is_open = isinstance(rows, Extent)
    name = partial(kept, kernel, is_kept=is_open)
    panels, heights = tile.across(columns), pieces(rows, tile.rows)
    heights = heights if isinstance(heights, int) else name("heights", heights)
    blocks, tiles = _blocks(kernel, rows, depth, heights)

    def work(pair: Value) -> Callable[[Value], None]:
        rows_read = widened(kernel, match.dtype if instruction.widens else "float32", tile.rows, depth, tile.lanes)

        def each(t: Value) -> None:
            j = name("j", pair % panels)
            i = name("i", minimum(pair // panels * tiles + t, heights - 1))
            row, column = tile.row(i, rows), tile.column(j, columns)
            panel = Panel(writing.right, j * layout.panel_size, tile.width * instruction.group, instruction)
            number = rows_read(lambda r, k: read(writing.left, (row + r, k)))

            def group(r: Value, step: Operand) -> Value:
                return instruction.left(writing.left, row + r, step * instruction.group)

            if unit is None:
                acc = tile.product(kernel, depth, number, panel, group, tile.few_steps if is_open else UNROLLED)
            else:
                acc = _by_tiles(unit, kernel, writing, depth, row, j * layout.panel_size, tile.width)
            tile.finish(kernel, acc, lambda total, r, c: writing.writer.store(total, (row + r, column + c)), match.after.is_long)

        return each

    around = nullcontext if unit is None else lambda: unit.configured(kernel)
    tasks = at_most(task_count(match, machine), blocks * panels * tiles)
    share_out(kernel, blocks * panels, tiles, tasks, work, around)


def _blocks(kernel: Kernel, rows: int, depth: int, heights: Operand) -> tuple[Operand, Operand]:
    """Number of blocks of rows, and number of tiles per block."""
    if isinstance(rows, int) and isinstance(heights, int):
        guess = max(1, round(rows * depth / CACHED))
        counts = sorted({1, guess // 2 or 1, guess, min(2 * guess, heights)})
        blocks = choose("blocks", counts, lambda count: abs(count - guess))
        return blocks, math.ceil(heights / blocks)
    number = kept(kernel, "blocks", maximum((as_index(rows) + CACHED // (2 * depth)) // max(CACHED // depth, 1), 1))
    return number, kept(kernel, "tiles", (heights + number - 1) // number)


def _by_tiles(
    unit: TileUnit, kernel: Kernel, writing: _GemmKernel, depth: int, row: Operand, panel: Operand, width: int
) -> Registers:
    """The sums of a tile, computed by the matrix unit from unpacked rows of the left matrix and a packed panel."""

    def step(k: Value) -> tuple[list[Left], list[Right]]:
        first = k * unit.depth
        lefts = [Left(writing.left, (row + i * unit.rows, first), depth) for i in range(unit.high)]
        rights = [Right(writing.right, panel + first * width + j * (2 * LANES), 2 * width) for j in range(unit.wide)]
        return lefts, rights

    return product_of_tiles(unit, kernel, depth // unit.depth, step)


def task_count(match: ConstantProduct, machine: Machine) -> int:
    """Number of tasks of the product."""
    return machine.tasks_for(match.rows * match.columns * match.depth, MATRIX_PRODUCTS)


@attrs.frozen(slots=True)
class ThinTile:
    """Some rows of the left matrix times some columns of the right one."""

    rows: int
    columns: int
    lanes: int
    """Number of elements of a vector."""

    def product(
        self, kernel: Kernel, depth: int, left: Callable[[Value, Operand], Value], right: Callable[[Value, Operand], Value]
    ) -> Registers:
        """The sums, each in the first lane of its vector; left(r, k) and right(c, k) are the elements of row r and column c."""
        steps, rest = divmod(depth, self.lanes)
        acc = kernel.registers("acc", float32, (self.rows, self.columns), self.lanes)
        with self.each(kernel) as (r, c), kernel.lanes(self.lanes) as lane:
            acc.set_lane((r, c), lane, 0.0)
        with kernel.loop(steps, "k") as k, self.each(kernel) as (r, c), kernel.lanes(self.lanes) as lane:
            at = k * self.lanes + lane
            acc.set_lane((r, c), lane, acc.lane((r, c), lane) + left(r, at) * right(c, at))
        for first in range(0, self.rows * self.columns * self.lanes, self.lanes):
            join_lanes("sum", acc.buffer, self.lanes, first)
        with kernel.loop(rest, "e") as e, self.each(kernel) as (r, c):
            at = depth - rest + e
            acc.set_lane((r, c), 0, acc.lane((r, c), 0) + left(r, at) * right(c, at))
        return acc

    @contextmanager
    def each(self, kernel: Kernel) -> Iterator[tuple[Value, Value]]:
        """A block for each row and column, unrolled."""
        with kernel.unroll(self.rows, "r") as r, kernel.unroll(self.columns, "c") as c:
            yield r, c


def thin_tile(rows: int, columns: int, machine: Machine) -> ThinTile:
    """The tile: up to four columns, and as many rows as the registers allow; one row if their number is dynamic."""
    wide = min(columns, 4)
    if isinstance(rows, Extent):
        return ThinTile(1, wide, machine.lanes)
    return ThinTile(max(1, min(rows, (machine.registers - wide - 1) // wide, 4)), wide, machine.lanes)


def thin(body: Body, machine: Machine) -> Draft | None:
    """The kernel for values times a constant matrix of few columns; None for any other body."""
    match = find_product(body)
    if match is None or match.columns >= machine.lanes:
        return None
    writing = match.kernel(body, match.columns * match.depth)
    kernel, tile = writing.kernel, thin_tile(match.rows, match.columns, machine)

    def work(pair: Value) -> Callable[[Value], None]:
        def each(t: Value) -> None:
            row, column = start(t, tile.rows, match.rows), start(pair, tile.columns, match.columns)
            left, right = writing.left, writing.right
            acc = tile.product(
                kernel,
                match.depth,
                lambda r, k: read(left, (row + r, k)),
                lambda c, k: read(right, ((column + c) * match.depth + k,)),
            )
            with tile.each(kernel) as (r, c):
                writing.writer.store(acc.lane((r, c), 0), (row + r, column + c))

        return each

    groups, heights = math.ceil(match.columns / tile.columns), pieces(match.rows, tile.rows)
    share_out(kernel, groups, heights, at_most(task_count(match, machine), groups * heights), work)

    def pack(array: Array) -> Array:
        columns = match.matrix(array).T
        return (columns if match.factor == 1.0 else columns * np.float32(match.factor)).reshape(-1)

    return writing.problem.draft(kernel, "gemm", {match.right: pack})
