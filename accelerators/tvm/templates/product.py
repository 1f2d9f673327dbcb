"""Products of two matrices that are both values, or many such products at once, and what follows them.

As for a constant matrix (`gemm.py`), but a task lays each panel out itself before it meets the rows; a panel that only one tile
of rows meets is read where it stands. Reshapes, transposes and scalings before and after are ways to read and write
(`strides.py`)."""

from __future__ import annotations

from typing import Any

import attrs

from accelerators.tvm.bodies import Body, shape_of
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.attention_pattern import Operand, Readers, operands_of, written_after
from accelerators.tvm.templates.epilogue import LONG, static_shape
from accelerators.tvm.templates.formulas import formula
from accelerators.tvm.templates.heads import Heads, found_in
from accelerators.tvm.templates.numbers import const
from accelerators.tvm.templates.panels import PanelTile, best_tile, shared_out
from accelerators.tvm.templates.script import Lines, kernel
from graph.node import Node, NodeEntry

SERIAL = 200_000
"""Fewer products than this are one thread's work."""

TASKS = 4
"""Tasks for each thread."""

LONGEST = 16
"""So many ops at most follow a product."""


@attrs.frozen(slots=True, eq=False)
class ValueProduct:
    """A product of two values, and what is computed with it."""

    left: Operand
    right: Operand
    root: Node
    """The product."""
    chain: tuple[Node, ...]
    """Element-wise ops after it."""
    after: tuple[Node, ...]
    """Ops that write the result in another order."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What it reads."""
        return self.left, self.right

    @property
    def nodes(self) -> set[Node]:
        """All of it."""
        return {self.root, *self.chain, *self.after, *self.left.path, *self.right.path}

    @property
    def result(self) -> NodeEntry:
        """What it makes."""
        return (self.after or self.chain or (self.root,))[-1][0]


def find_value_product(root: Node, readers: Readers, version: int) -> ValueProduct | None:
    """What is around a MatMul."""
    shape = static_shape(root[0]) if root.op == "MatMul" and not root.domain else None
    sides = [None if entry is None else static_shape(entry) for entry in root.inputs]
    if shape is None or 0 in shape or any(side is None or len(side) < 2 or 0 in side for side in sides):
        return None
    chain: list[Node] = []
    made = root[0]
    while len(readers.get(made, ())) == 1 and len(chain) < LONGEST:
        node = readers[made][0]
        if node is None or formula(node, version) is None or static_shape(node[0]) != shape:
            break
        chain.append(node)
        made = node[0]
    operands = operands_of([root.inputs[0], root.inputs[1]], {root, *chain}, readers)
    if operands is None or any(static_shape(operand.source) is None for operand in operands):
        return None
    left, right = operands
    return ValueProduct(left, right, root, tuple(chain), written_after(made, readers))


@template("cpu", ops=frozenset({"MatMul"}))
def product(body: Body, machine: Machine) -> Draft | None:
    """Bodies of one product."""
    found = found_in(body, "MatMul", find_value_product)
    shape = () if found is None else shape_of(found.root[0])
    tile = best_tile(shape[-2], shape[-1], machine) if shape else None
    if found is None or tile is None:
        return None
    heads = Heads(body, shape[:-2])
    params = heads.params(found.result)
    shapes = {i: size for i, (_, size, _) in enumerate(params[:-1])}
    factor = found.left.factor * found.right.factor

    def number(total: Any, *given: Any) -> Any:
        scaled = total if factor == 1.0 else total * const(factor)
        return heads.number(found.chain, found.root[0], (found.chain or (found.root,))[-1][0], scaled, given)

    function = kernel(params, _text(found, heads, shape[-2], shape[-1], tile, machine), {"f0": number})
    return Draft(function, "product", shapes=shapes, results=(params[-1][1],))


def _text(found: ValueProduct, heads: Heads, rows: int, columns: int, tile: PanelTile, machine: Machine) -> Lines:
    """The kernel's loops: tasks, then pairs of a head and a panel, then tiles."""
    depth = shape_of(found.left.value)[-1]
    panels, tiles = tile.across(columns), tile.down(rows)
    row, column = tile.row("t", rows), tile.column("j", columns)
    left, left_at = heads.read(found.left)
    right, right_at = heads.read(found.right)
    result, result_at = heads.written(found.result, found.after)

    def number(r: str, k: str) -> str:
        return f"{left}[{heads.at(left_at, f'{row} + {r}', k)}]"

    def store(total: str, r: str, c: str) -> Lines:
        place = f"{row} + {r}", f"{column} + {c}"
        given = [total, *heads.beside_at(found.chain, rows, columns, *place)]
        return [f"{result}[{heads.at(result_at, *place)}] = f0({', '.join(given)})"]

    before = [f"j: T.let = pair % {panels}", f"head: T.let = pair // {panels}", *heads.indices]
    if tiles == 1 and right_at.steps[-1] == 1:
        work = tile.product(depth, number, right, heads.at(right_at, "0", column), right_at.steps[-2])
    else:
        before += [f'panel = T.alloc_buffer(({depth * tile.width},), "float32")']
        before += heads.packed("panel", right, right_at, tile, depth, column)
        work = tile.product(depth, number, "panel", "0")
    work += tile.finish(store, any(node.op in LONG for node in found.chain))
    threads = machine.threads if heads.count * rows * columns * depth >= SERIAL else 1
    tasks = min(TASKS * threads if threads > 1 else 1, heads.count * panels * tiles)
    return shared_out(heads.count * panels, tiles, tasks, work, before)
