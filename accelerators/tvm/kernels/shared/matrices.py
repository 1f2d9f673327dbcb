"""Chains of element-wise ops on matrices: all dimensions but the last are rows.

A reshape that keeps the last dimension does nothing here, so a chain may run through it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.shared.element_access import Shape, number_shape, real_shape
from partita.accelerators.tvm.kernels.shared.epilogue import Epilogue, epilogue_of
from partita.accelerators.tvm.kernels.shared.formulas import Formula, formula
from partita.accelerators.tvm.kernels.shared.strides import VIEWS
from partita.graph.node import Node

Size = tuple[int, int]


def make_following(body: Body, root: Node, start: Formula, beside: Sequence[int] = ()) -> Epilogue | None:
    """The element-wise ops of the body after `root`, a matrix product; None if another op is among them.

    `start` computes the product's result from the sum and the root's inputs. Those in `beside` are read at its position."""
    whole = real_shape(root[0])
    before = {entry.node for entry in root.reads}
    others = [node for node in body.ops if node is not root and node not in before]
    formulas = {node: formula(node, body.graph.opsets.get("", 1)) for node in others if node.op not in VIEWS}
    arrays = any(node.value is not None and node.value.size != 1 for node in body.graph.nodes if _is_read(node, others))
    if not whole or 0 in whole or arrays or None in formulas.values():
        return None
    if any(not is_matrix_of(number_shape(entry), whole) for node in others for entry in node.outputs):
        return None
    reads = [(root.inputs[i], read_size(number_shape(root.inputs[i]), whole)) for i in beside]
    for node in others:
        shape = number_shape(node[0]) or ()
        read = node.reads if node.op not in VIEWS else node.reads[:1]
        reads += [(entry, read_size(number_shape(entry), shape)) for entry in read]
    if any(entry is not None and number_shape(entry) is None for entry, _ in reads):
        return None
    return epilogue_of(body, root, start, formulas, reads, (math.prod(whole[:-1]), whole[-1]))


def is_matrix_of(shape: Shape | None, whole: Shape) -> bool:
    """True if a value of this shape has as many rows and columns as `whole`."""
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


def _is_read(node: Node, others: Sequence[Node]) -> bool:
    """True if the constant is an operand of a formula, not the shape of a reshape."""
    return any(entry.node is node for other in others if other.op not in VIEWS for entry in other.reads)
