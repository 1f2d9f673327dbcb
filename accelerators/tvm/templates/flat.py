"""Ops that follow one another number by number on matrices: all dimensions but the last are rows.

A reshape that keeps the last dimension is nothing here, so a chain may run through it."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from accelerators.tvm.bodies import Body
from accelerators.tvm.templates.epilogue import VIEWS, chain_number, input_name, output_name, static_shape
from accelerators.tvm.templates.formulas import Formula, formula
from accelerators.tvm.templates.script import Lines
from graph.node import Node

Shape = tuple[int, ...]
Size = tuple[int, int]

LONG = frozenset("Exp Tanh Erf Sigmoid Softplus Mish Swish Elu Selu Gelu".split())
"""Ops of many instructions."""


@attrs.frozen(slots=True, eq=False)
class Following:
    """The ops after a product, and the values that they read beside it."""

    operands: Mapping[int, Size]
    """By input of the body, rows and columns under which it is read; either may be 1."""
    functions: Mapping[str, Any]
    """By name, what a kernel's text calls for each output: from the sum and the operands at its place to the number."""
    is_long: bool
    """Are they many instructions?"""

    def store(self, total: str, row: str, column: str) -> Lines:
        """Lines that write every output at a place, given the text of the sum there."""
        given = ", ".join([total, *(f"{input_name(i)}[{_at(size, row, column)}]" for i, size in self.operands.items())])
        return [f"{output_name(i)}[{row}, {column}] = {name}({given})" for i, name in enumerate(self.functions)]


def make_following(body: Body, root: Node, start: Formula, beside: Sequence[int] = ()) -> Following | None:
    """The ops of the body after `root`, a matrix product; None if one of them is more than that.

    `start` computes the product's number from the sum and the root's inputs, of which those at `beside` are read at its place."""
    whole = static_shape(root[0])
    before = {entry.node for entry in root.reads}
    others = [node for node in body.ops if node is not root and node not in before]
    formulas = {node: formula(node, body.graph.opsets.get("", 1)) for node in others if node.op not in VIEWS}
    arrays = any(node.value is not None and node.value.size != 1 for node in body.graph.nodes if _is_read(node, others))
    if not whole or 0 in whole or arrays or None in formulas.values():
        return None
    if any(not is_matrix_of(static_shape(entry), whole) for node in others for entry in node.outputs):
        return None
    operands = _operands(body, root, others, whole, beside)
    if operands is None:
        return None
    given = [body.graph.inputs[i][0] for i in operands]
    compute = functools.partial(chain_number, body, root, start, formulas, given)
    functions = {f"f{i}": functools.partial(compute, entry) for i, entry in enumerate(body.graph.outputs)}
    return Following(operands, functions, any(node.op in LONG for node in others))


def is_matrix_of(shape: Shape | None, whole: Shape) -> bool:
    """As many rows and columns?"""
    return bool(shape) and shape is not None and shape[-1] == whole[-1] and math.prod(shape) == math.prod(whole)


def read_size(shape: Shape | None, whole: Shape) -> Size | None:
    """Rows and columns of an operand that is broadcast to `whole`; None if it is neither one row nor all of them."""
    if shape is None or len(shape) > len(whole) or not whole:
        return None
    aligned = (1,) * (len(whole) - len(shape)) + shape
    rows = math.prod(aligned[:-1])
    if aligned[-1] not in (1, whole[-1]) or (rows != 1 and aligned[:-1] != whole[:-1]):
        return None
    return rows, aligned[-1]


def _operands(body: Body, root: Node, others: Sequence[Node], whole: Shape, beside: Sequence[int]) -> dict[int, Size] | None:
    """By input that is read beside the sum, its size; None if one of them does not fit, or is read in two ways."""
    positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    reads = [(root.inputs[i], whole) for i in beside]
    for node in others:
        made = static_shape(node[0])
        reads += [(entry, made or ()) for entry in (node.reads if node.op not in VIEWS else node.reads[:1])]
    found: dict[int, Size] = {}
    for entry, shape in reads:
        if entry in positions:
            size = read_size(static_shape(entry), shape)
            if size is None or found.setdefault(positions[entry], size) != size:
                return None
        elif entry is not None and static_shape(entry) is None:
            return None
    return found


def _is_read(node: Node, others: Sequence[Node]) -> bool:
    """Is the constant a number of a formula, and not the shape that a reshape is given?"""
    return any(entry.node is node for other in others if other.op not in VIEWS for entry in other.reads)


def _at(size: Size, row: str, column: str) -> str:
    return ", ".join("0" if extent == 1 else index for extent, index in zip(size, (row, column), strict=True))
