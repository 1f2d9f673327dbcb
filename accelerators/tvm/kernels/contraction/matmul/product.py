"""Products of two values, single or batched, and their epilogue.

As for a constant matrix (`gemm.py`), but a task packs each panel itself before the product; a panel that only one tile of rows
uses is read in place. Reshapes, transposes and scalings around the product become strides (`strides.py`) and a factor. If rows,
columns or the depth are dynamic, there is code for tiles of several widths and heights, chosen at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import in_lanes, instruction_for, widened
from partita.accelerators.tvm.kernels.contraction.operands import (
    Readers,
    TwoSided,
    chain_after,
    found_in,
    is_value_product,
    operands_of,
    written_after,
)
from partita.accelerators.tvm.kernels.contraction.panels import MANY, Panel, PanelTile, at_most, best_tile, by_height, share_out
from partita.accelerators.tvm.kernels.language import Operand, Value, float32, uint16
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import real_shape, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import kept, pieces
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import VALUE_PRODUCTS
from partita.accelerators.tvm.sizes.extent import Extent, Size, known_least
from partita.graph.node import Node
from partita.graph.ops.traits import ops

LOW = 4
"""Height of the narrower tiles for products of few columns."""


def find_value_product(root: Node, readers: Readers, version: int) -> TwoSided | None:
    """The product around a MatMul, with the ops that are fused into it; None if the kernel does not support it."""
    shape = real_shape(root[0]) if is_value_product(root) else None
    sides = [None if entry is None else real_shape(entry) for entry in root.inputs]
    if shape is None or 0 in shape or any(side is None or len(side) < 2 or 0 in side for side in sides):
        return None
    chain = chain_after(root, real_shape, readers, version)
    operands = operands_of([root.inputs[0], root.inputs[1]], {root, *chain}, readers)
    if operands is None or any(real_shape(operand.source) is None for operand in operands):
        return None
    left, right = operands
    return TwoSided(left, right, root, tuple(chain), written_after((chain or [root])[-1][0], readers))


def product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body that is one product; None for any other body."""
    match = found_in(body, find_value_product)
    if match is None:
        return None
    *batch, rows, columns = shape_of(match.root[0])
    is_open = any(isinstance(size, Extent) for size in (*batch, rows, columns, shape_of(match.left.value)[-1]))
    tile = best_tile(_example(rows), _example(columns), machine) or (_narrow(rows, columns) if is_open else None)
    if tile is None:
        return None
    heads = Heads.of(body, "product", tuple(batch))
    if any(isinstance(size, Extent) for size in (rows, columns, shape_of(match.left.value)[-1])):
        _write_any(match, heads, rows, columns, tile, machine)
    else:
        _write(match, heads, rows, columns, tile, machine)
    return heads.problem.draft(heads.kernel, "product")


def _example(size: Size) -> int:
    """The size, or MANY if it is dynamic."""
    return MANY if isinstance(size, Extent) else size


def _narrow(rows: Size, columns: int) -> PanelTile:
    """A tile of one vector that is narrower than the processor's, for fewer columns than lanes."""
    return PanelTile(min(LOW, _example(rows)), 1, 1 << (columns.bit_length() - 1))


def _write_any(match: TwoSided, heads: Heads, rows: int, columns: int, tile: PanelTile, machine: Machine) -> None:
    """Writes code for tiles of each width, and of the heights that a dynamic number of rows needs."""
    kernel, wider = heads.kernel, list[int]()
    for candidate in _widths(tile, columns):
        fits = as_index(columns) >= candidate.width
        with kernel.when(fits & (as_index(columns) < wider[-1]) if wider else fits):
            heights = candidate.heights() if candidate is tile else _low(candidate)
            by_height(kernel, rows, heights, lambda chosen: _write(match, heads, rows, columns, chosen, machine))
        wider.append(candidate.width)


def _widths(tile: PanelTile, columns: Size) -> Iterator[PanelTile]:
    """The tile, and narrower ones down to the lower bound of the columns."""
    yield tile
    least = tile.width
    for lanes in (tile.lanes, 1):
        if known_least(columns) < least > lanes:
            yield PanelTile(tile.rows, 1, lanes)
            least = lanes


def _low(tile: PanelTile) -> list[PanelTile]:
    """A narrow tile at a few heights."""
    return [attrs.evolve(tile, rows=rows) for rows in sorted({1, min(LOW, tile.rows)})]


def _write(match: TwoSided, heads: Heads, rows: int, columns: int, tile: PanelTile, machine: Machine) -> None:
    """Writes the loops: over tasks, then pairs of a head and a panel, then tiles."""
    kernel, depth, dtype = heads.kernel, shape_of(match.left.value)[-1], element_of(match.root[0])
    name = partial(kept, kernel, is_kept=isinstance(rows, Extent) or isinstance(columns, Extent))
    panels, tiles = pieces(columns, tile.width), pieces(rows, tile.rows)
    panels = panels if isinstance(panels, int) else name("panels", panels)
    tiles = tiles if isinstance(tiles, int) else name("tiles", tiles)
    left, right, result = heads.read(match.left), heads.read(match.right), heads.written(match.result, match.after)
    factor, wanted = match.left.factor * match.right.factor, (match.chain or (match.root,))[-1][0]
    number = heads.chain(match.chain, match.root[0], wanted, factor, rows, columns)
    takes_groups = left.strides.steps[-1] == 1 and isinstance(depth, int)
    instruction = in_lanes(instruction_for(dtype, machine, takes_groups), tile.lanes, machine)
    stands = isinstance(tiles, int) and tiles == 1 and right.strides.steps[-1] == 1 and instruction.widens

    def panel_of(head: Head, column: Operand) -> Panel:
        """The panel in place, or packed for the instruction."""
        if stands:
            return Panel(right.buffer, right.at(head, 0, column), right.strides.steps[-2])
        group = instruction.group
        if instruction.widens:
            numbers = depth * tile.width
            packed = kernel.memory("panel", float32, (as_index(numbers) if isinstance(numbers, Extent) else numbers,))
            heads.pack(packed, 0, right, head, tile, depth, column)
        else:
            packed = kernel.memory("panel", uint16, (instruction.steps(depth) * group * tile.width,))
            heads.pack_pairs(packed, 0, right, head, tile, depth, column)
        return Panel(packed, 0, tile.width * group, instruction)

    def work(pair: Value) -> Callable[[Value], None]:
        j = name("j", pair % panels)
        head = heads.head(name("head", pair // panels))
        column = name("column", tile.column(j, columns)) if isinstance(columns, Extent) else tile.column(j, columns)
        panel = panel_of(head, column)
        rows_read = widened(kernel, dtype if instruction.widens else "float32", tile.rows, depth, tile.lanes)

        def each(t: Value) -> None:
            row = name("row", tile.row(t, rows)) if isinstance(rows, Extent) else tile.row(t, rows)

            def group(r: Value, step: Operand) -> Value:
                return instruction.left(left.buffer, left.at(head, row + r, step * instruction.group))

            number_of = rows_read(lambda r, k: left.number(head, row + r, k))
            acc = tile.product(kernel, depth, number_of, panel, group)

            def store(total: Value, r: Value, c: Value) -> None:
                position = (result.at(head, row + r, column + c),)
                write(result.buffer, position, number(total, head, row + r, column + c))

            tile.finish(kernel, acc, store, any(node.op in ops("long") for node in match.chain))

        return each

    pairs = heads.count * panels if isinstance(panels, int) else as_index(heads.count) * panels
    pairs = pairs if isinstance(tiles, int) else as_index(pairs)
    tasks = at_most(machine.tasks_for(heads.count * rows * columns * depth, VALUE_PRODUCTS), pairs * tiles)
    share_out(kernel, pairs, tiles, tasks, work)
