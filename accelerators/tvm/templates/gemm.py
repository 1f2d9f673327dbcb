"""Matrix product with a constant matrix, and what follows it.

The matrix is laid out at compile time in panels of a few vectors' width, each one contiguous stream. A task is a range of
panels and of rows; tiles of rows x panel keep their sums in registers and write their results once, through the epilogue.
Where a size is no multiple of the tile's, the last tile overlaps the one before and computes the same numbers again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelerators.tvm.bodies import Body
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Array, Draft, template
from accelerators.tvm.templates.cut import cut_work
from accelerators.tvm.templates.epilogue import Epilogue, input_name, make_epilogue, output_name, static_shape
from accelerators.tvm.templates.formulas import Number
from accelerators.tvm.templates.numbers import const
from accelerators.tvm.templates.script import Lines, kernel, loop
from accelerators.tvm.templates.tile import Tile, start, starts, tiles
from graph.node import Node


@template("cpu", ops=frozenset({"MatMul", "Gemm"}))
def gemm(body: Body, machine: Machine) -> Draft | None:
    """Values times a constant matrix."""
    found = _product(body)
    if found is None:
        return None
    root, left, right = found
    shape, weight = static_shape(root[0]), static_shape(root.inputs[1])
    assert shape is not None and weight is not None
    rank = len(shape)
    depth = weight[1] if root.attrs.get("transB", 0) else weight[0]
    columns, rows = shape[-1], math.prod(shape[:-1])
    bias = static_shape(root.inputs[2]) if len(root.inputs) > 2 else None
    beside = {} if bias is None else {2: bias}
    after = make_epilogue(body, root, _start, [(0, rank - 1), (rank - 1, rank)], beside)
    if (
        after is None
        or columns < machine.lanes
        or (left in after.operands and after.operands[left] != (rows, depth))
    ):
        return None
    tile = _best(rows, columns, machine)
    shapes: dict[int, tuple[int, ...]] = {left: (rows, depth), **after.operands}
    panels = starts(columns, tile.width)
    shapes[right] = (len(panels) * depth * tile.width,)
    text = _text(rows, columns, depth, left, right, tile, after, machine)
    params = [(input_name(i), shapes.get(i, (1,)), "float32") for i in range(len(body.graph.inputs))]
    params += [(output_name(i), after.results, "float32") for i in range(len(body.graph.outputs))]

    def pack(array: Array) -> Array:
        matrix = (array.T if root.attrs.get("transB", 0) else array) * np.float32(
            root.attrs.get("alpha", 1.0)
        )
        return np.stack([matrix[:, at : at + tile.width] for at in panels]).reshape(-1)

    made = kernel(params, text, after.functions)
    return Draft(made, "gemm", {right: pack}, shapes, [after.results] * len(body.graph.outputs))


def _product(body: Body) -> tuple[Node, int, int] | None:
    """The body's product, and which inputs its matrices are; None unless the second is a constant of two dimensions."""
    roots = [node for node in body.ops if node.op in ("MatMul", "Gemm")]
    positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    if len(roots) != 1 or roots[0].attrs.get("transA", 0):
        return None
    root = roots[0]
    assert root.inputs[0] is not None and root.inputs[1] is not None
    left, right = positions.get(root.inputs[0]), positions.get(root.inputs[1])
    weight, shape = static_shape(root.inputs[1]), static_shape(root.inputs[0])
    if (
        left is None
        or right is None
        or left >= body.values
        or right < body.values
        or weight is None
        or shape is None
    ):
        return None
    once = sum(entry == root.inputs[1] for node in body.ops for entry in node.reads) == 1
    made = static_shape(root[0])
    if not once or len(weight) != 2 or len(shape) < 2 or not made or 0 in (*weight, *shape):
        return None
    return root, left, right


def _start(node: Node, x: Any) -> Number:
    """The product's number: alpha is in the packed matrix already."""
    if len(x) < 4 or x[3] is None:
        return x[0]
    beta = float(node.attrs.get("beta", 1.0))
    return x[0] + (x[3] if beta == 1.0 else x[3] * const(beta))


def _best(rows: int, columns: int, machine: Machine) -> Tile:
    """The tile that takes the fewest cycles for all of it."""

    def cost(tile: Tile) -> float:
        return math.ceil(rows / tile.rows) * math.ceil(columns / tile.width) * tile.cycles

    return min((t for t in tiles(machine) if t.rows <= rows and t.width <= columns), key=cost)


def _text(
    rows: int, columns: int, depth: int, left: int, right: int, tile: Tile, after: Epilogue, machine: Machine
) -> Lines:
    """The kernel's loops: tasks over ranges of panels and of row tiles, then panels, then tiles."""
    panels, heights = math.ceil(columns / tile.width), math.ceil(rows / tile.rows)
    cut = cut_work(panels, heights, columns * depth, rows * depth, rows * columns * depth, machine.threads)
    place = [
        f"{start('i', tile.rows, rows)} + r",
        f"{start('j', tile.width, columns)} + v * {tile.lanes} + l",
    ]
    number, vector = f"{input_name(left)}[{place[0]}, k]", f"(j * {depth} + k) * {tile.width}"
    work = [*tile.buffers, *tile.clear(), *loop("k", depth, tile.step(number, input_name(right), vector))]
    work += tile.lane_sums(after.store(tile.lane, place))
    return cut.tasks("j", "i", work)
