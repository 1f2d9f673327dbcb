"""Matrix product with a constant matrix, and what follows it.

The matrix is laid out in panels at compile time (`panels.py`). Pairs of a panel and a tile of rows are numbered panel by panel,
and each task takes an equal range of them: so each weight is read by one core, and any number of rows is shared out evenly.
Only where the rows are more than a cache holds are they cut into blocks, each of which meets all panels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from accelerators.tvm.bodies import Body
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Array, Draft, template
from accelerators.tvm.templates.choice import choose
from accelerators.tvm.templates.epilogue import Epilogue, input_name, output_name, static_shape
from accelerators.tvm.templates.flat import make_following
from accelerators.tvm.templates.formulas import Number
from accelerators.tvm.templates.numbers import const
from accelerators.tvm.templates.panels import PanelTile, best_tile, shared_out
from accelerators.tvm.templates.script import Lines, kernel
from graph.node import Node, NodeEntry

SERIAL = 500_000
"""Fewer products than this are one thread's work: it does them in about the time that it takes to wake the others."""

TASKS = 4
"""Tasks for each thread: a thread that is held up is late by little."""

CACHED = 1 << 20
"""Numbers of the left matrix that a cache holds while one panel after another meets them."""


@attrs.frozen(slots=True, eq=False)
class Product:
    """A product by a constant matrix, and what follows."""

    root: Node
    """MatMul or Gemm."""
    left: int
    """Which of the body's inputs the left matrix is."""
    right: int
    """Which the constant one is."""
    rows: int
    """Of the left matrix."""
    columns: int
    """Of the right one."""
    turned: bool
    """Is the constant given with its columns first?"""
    depth: int
    """Products in each sum."""
    after: Epilogue
    """The ops after it."""

    def matrix(self, array: Array) -> Array:
        """The constant matrix, depth by columns."""
        return array.T if self.turned else array

    def scaled(self, packed: Array) -> Array:
        """The packed matrix times the Gemm's factor, flat."""
        alpha = np.float32(self.root.attrs.get("alpha", 1.0))
        return (packed if alpha == 1.0 else packed * alpha).reshape(-1)

    def params(self, body: Body, size: int) -> list[tuple[str, tuple[int, ...], str]]:
        """The kernel's buffers: the inputs, the packed matrix of so many numbers among them, and the outputs."""
        shapes = {**self.after.operands, self.left: (self.rows, self.depth), self.right: (size,)}
        made = [(input_name(i), shapes.get(i, (1,)), "float32") for i in range(len(body.graph.inputs))]
        return made + [(output_name(i), (self.rows, self.columns), "float32") for i in range(len(body.graph.outputs))]

    def draft(self, body: Body, size: int, text: Lines, pack: Callable[[Array], Array]) -> Draft:
        """The kernel of these loops."""
        params, count = self.params(body, size), len(body.graph.inputs)
        shapes = {i: shape for i, (_, shape, _) in enumerate(params[:count])}
        results = [shape for _, shape, _ in params[count:]]
        return Draft(kernel(params, text, self.after.functions), "gemm", {self.right: pack}, shapes, results)

    def pack(self, array: Array, tile: PanelTile) -> Array:
        """The constant matrix in panels [panel, depth, column]."""
        matrix = self.matrix(array)
        panels = np.empty((tile.across(self.columns), self.depth, tile.width), np.float32)
        for panel, at in zip(panels, tile.starts(self.columns), strict=True):
            panel[...] = matrix[:, at : at + tile.width]
        return self.scaled(panels)


@template("cpu", ops=frozenset({"MatMul", "Gemm"}))
def gemm(body: Body, machine: Machine) -> Draft | None:
    """Values times a constant matrix."""
    found = find_product(body)
    tile = None if found is None else best_tile(found.rows, found.columns, machine)
    if found is None or tile is None:
        return None
    size = tile.across(found.columns) * found.depth * tile.width
    return found.draft(body, size, _text(found, tile, machine), lambda array: found.pack(array, tile))


def find_product(body: Body) -> Product | None:
    """The body's product; None unless its second matrix is a constant of two dimensions, and all the rest can be worked in.

    The constant may be transposed first."""
    roots = [node for node in body.ops if node.op in ("MatMul", "Gemm")]
    positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    if len(roots) != 1 or roots[0].attrs.get("transA", 0):
        return None
    root = roots[0]
    given, turned = root.inputs[1], bool(root.attrs.get("transB", 0))
    assert root.inputs[0] is not None and given is not None
    before = before_turn(given.node)
    if before is not None:
        given, turned = before, not turned
    left, right = positions.get(root.inputs[0]), positions.get(given)
    shape, weight, made = static_shape(root.inputs[0]), static_shape(given), static_shape(root[0])
    if left is None or right is None or left >= body.values or right < body.values or shape is None or weight is None:
        return None
    once = sum(entry == given for node in body.ops for entry in node.reads) == 1
    if not once or len(weight) != 2 or not made or 0 in (*weight, *shape) or made[-1] != weight[not turned]:
        return None
    biased = len(root.inputs) > 2 and root.inputs[2] is not None
    after = make_following(body, root, _start, (2,) if biased else ())
    rows, columns, depth = math.prod(made[:-1]), made[-1], shape[-1]
    if after is None or after.operands.get(left, (rows, depth)) != (rows, depth):
        return None
    return Product(root, left, right, rows, columns, turned, depth, after)


def before_turn(node: Node) -> NodeEntry | None:
    """The matrix whose transpose the node is."""
    given = node.inputs[0] if node.op == "Transpose" and not node.domain else None
    is_matrix = given is not None and len(static_shape(given) or ()) == 2
    return given if is_matrix and tuple(node.attrs.get("perm", (1, 0))) == (1, 0) else None


def _start(node: Node, x: Any) -> Number:
    """The product's number: alpha is in the packed matrix already."""
    if len(x) < 4 or x[3] is None:
        return x[0]
    beta = float(node.attrs.get("beta", 1.0))
    return x[0] + (x[3] if beta == 1.0 else x[3] * const(beta))


def _text(found: Product, tile: PanelTile, machine: Machine) -> Lines:
    """The kernel's loops: tasks, then pairs of a block of rows and a panel, then tiles."""
    rows, columns, depth = found.rows, found.columns, found.depth
    panels, heights = tile.across(columns), tile.down(rows)
    guess = max(1, round(rows * depth / CACHED))
    blocks = choose("blocks", sorted({1, guess // 2 or 1, guess, min(2 * guess, heights)}), lambda count: abs(count - guess))
    tiles = math.ceil(heights / blocks)
    row, column = tile.row("i", rows), tile.column("j", columns)

    def number(r: str, k: str) -> str:
        return f"{input_name(found.left)}[{row} + {r}, {k}]"

    def store(total: str, r: str, c: str) -> Lines:
        return found.after.store(total, [f"{row} + {r}", f"{column} + {c}"])

    work = ["j: T.let = pair % " + str(panels), f"i: T.let = T.min(pair // {panels} * {tiles} + t, {heights - 1})"]
    work += tile.product(depth, number, input_name(found.right), f"j * {depth * tile.width}")
    work += tile.finish(store, found.after.is_long)
    return shared_out(blocks * panels, tiles, min(task_count(found, machine), blocks * panels * tiles), work)


def task_count(found: Product, machine: Machine) -> int:
    """Into how many tasks the product is cut."""
    many = machine.threads > 1 and found.rows * found.columns * found.depth >= SERIAL
    return TASKS * machine.threads if many else 1
