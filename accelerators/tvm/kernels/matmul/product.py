"""Products of two matrices that are both values, or many such products at once, and what follows them.

As for a constant matrix (`gemm.py`), but a task lays each panel out itself before it meets the rows; a panel that only one tile
of rows meets is read where it stands. Reshapes, transposes and scalings before and after are ways to read and write
(`strides.py`)."""

from __future__ import annotations

from collections.abc import Callable

from accelerators.tvm.bodies.body import Body, element_of, shape_of
from accelerators.tvm.kernels.language import Operand, Value, float32, uint16
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.kernels.shared.formulas import LONG, formula
from accelerators.tvm.kernels.shared.heads import Head, Heads, found_in
from accelerators.tvm.kernels.shared.instructions import FMA, instruction_for, widened
from accelerators.tvm.kernels.shared.numbers import write
from accelerators.tvm.kernels.shared.operands import MOST_AFTER, Readers, TwoSided, operands_of, written_after
from accelerators.tvm.kernels.shared.panels import Panel, PanelTile, at_most, best_tile, share_out
from accelerators.tvm.kernels.shared.shapes import real_shape
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.machine.work import VALUE_PRODUCTS
from graph.node import Node


def find_value_product(root: Node, readers: Readers, version: int) -> TwoSided | None:
    """The product around a MatMul, with all that is worked into it; None if the kernel does not take it."""
    shape = real_shape(root[0]) if root.op == "MatMul" and not root.domain else None
    sides = [None if entry is None else real_shape(entry) for entry in root.inputs]
    if shape is None or 0 in shape or any(side is None or len(side) < 2 or 0 in side for side in sides):
        return None
    chain: list[Node] = []
    output = root[0]
    while len(readers.get(output, ())) == 1 and len(chain) < MOST_AFTER:
        node = readers[output][0]
        if node is None or formula(node, version) is None or real_shape(node[0]) != shape:
            break
        chain.append(node)
        output = node[0]
    operands = operands_of([root.inputs[0], root.inputs[1]], {root, *chain}, readers)
    if operands is None or any(real_shape(operand.source) is None for operand in operands):
        return None
    left, right = operands
    return TwoSided(left, right, root, tuple(chain), written_after(output, readers))


def product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body of one product; None for any other body."""
    match = found_in(body, "MatMul", find_value_product)
    shape = () if match is None else shape_of(match.root[0])
    tile = best_tile(shape[-2], shape[-1], machine) if shape else None
    if match is None or tile is None:
        return None
    heads = Heads.of(body, "product", shape[:-2])
    _write(match, heads, shape[-2], shape[-1], tile, machine)
    return heads.problem.draft(heads.kernel, "product")


def _write(match: TwoSided, heads: Heads, rows: int, columns: int, tile: PanelTile, machine: Machine) -> None:
    """Tasks, then pairs of a head and a panel, then tiles."""
    kernel, depth, dtype = heads.kernel, shape_of(match.left.value)[-1], element_of(match.root[0])
    panels, tiles = tile.across(columns), tile.down(rows)
    left, right, result = heads.read(match.left), heads.read(match.right), heads.written(match.result, match.after)
    factor, wanted = match.left.factor * match.right.factor, (match.chain or (match.root,))[-1][0]
    number = heads.chain(match.chain, match.root[0], wanted, factor, rows, columns)
    instruction = instruction_for(dtype, machine) if left.strides.steps[-1] == 1 else FMA
    stands = tiles == 1 and right.strides.steps[-1] == 1 and instruction is FMA

    def panel_of(head: Head, column: Operand) -> Panel:
        """The panel where it stands, or laid out as the instruction takes it."""
        if stands:
            return Panel(right.buffer, right.at(head, 0, column), right.strides.steps[-2])
        count, group = depth * tile.width, instruction.group
        if instruction is FMA:
            packed = kernel.memory("panel", float32, (count,))
            heads.pack(packed, 0, right, head, tile, depth, column)
        else:
            packed = kernel.memory("panel", uint16, (instruction.steps(depth) * group * tile.width,))
            heads.pack_pairs(packed, 0, right, head, tile, depth, column)
        return Panel(packed, 0, tile.width * group, instruction)

    def work(pair: Value) -> Callable[[Value], None]:
        j = kernel.name_value("j", pair % panels)
        head = heads.head(kernel.name_value("head", pair // panels))
        column = tile.column(j, columns)
        panel = panel_of(head, column)
        rows_read = widened(kernel, dtype if instruction is FMA else "float32", tile.rows, depth, tile.lanes)

        def each(t: Value) -> None:
            row = tile.row(t, rows)

            def group(r: Value, step: Operand) -> Value:
                return instruction.left(left.buffer, left.at(head, row + r, step * instruction.group))

            number_of = rows_read(lambda r, k: left.number(head, row + r, k))
            acc = tile.product(kernel, depth, number_of, panel, group)

            def store(total: Value, r: Value, c: Value) -> None:
                position = (result.at(head, row + r, column + c),)
                write(result.buffer, position, number(total, head, row + r, column + c))

            tile.finish(kernel, acc, store, any(node.op in LONG for node in match.chain))

        return each

    tasks = at_most(machine.tasks_for(heads.count * rows * columns * depth, VALUE_PRODUCTS), heads.count * panels * tiles)
    share_out(kernel, heads.count * panels, tiles, tasks, work)
