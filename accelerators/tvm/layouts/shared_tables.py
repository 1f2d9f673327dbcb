"""Tables that are read by both a Gather and a product, as the embeddings of a language model, are stored once.

The product reads the table in panels. Each row of the table is one of the product's columns, and is gathered from the panels. If
the product was tuned to other panels, each of the two has its own copy."""

from __future__ import annotations

import math
from collections.abc import Collection

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import element_of
from partita.accelerators.tvm.bodies.packed import DOMAIN, PANEL_ROWS
from partita.accelerators.tvm.kernels.contraction.matmul.gemm import Cut, before_turn
from partita.accelerators.tvm.kernels.shared.element_access import any_shape, real_shape
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.registry import REQUESTS, register_pass


@attrs.frozen(slots=True, eq=False)
class _Panels:
    """The layout in which a product reads a table."""

    matrix: NodeEntry
    """The constant that the product reads: the table, or its transpose."""
    turned: bool
    """True if the matrix is the table, which the product reads transposed; False for the table's transpose."""
    cut: Cut

    @property
    def attributes(self) -> dict[str, int]:
        """The attributes of an op that gathers rows of the table."""
        return {"width": self.cut.tile.width, "group": self.cut.instruction.group, "turned": int(self.turned)}


@register_pass("ShareTables", keeps=REQUESTS, family="tvm")
def share_tables(graph: Graph, machine: Machine) -> Graph:
    """Gathers that read a table in the layout of a matrix product by the same table, so that it is stored once. Linear, except
    that constants of transposed shapes are compared."""
    tables = dict.fromkeys(node.inputs[0] for node in graph.nodes if _is_gather(node) and node.inputs[0] is not None)
    panels: dict[NodeEntry, _Panels] = {}
    for node in graph.nodes if tables else ():
        matrix, turned = _matrix_of(node)
        table = None if matrix is None else _table_of(matrix, turned, tables)
        cut = None if table is None else _cut_of(node, machine)
        if matrix is not None and table is not None and cut is not None:
            panels.setdefault(table, _Panels(matrix, turned, cut))

    def visit(node: Node, rewriter: Rewriter) -> None:
        layout = panels.get(node.inputs[0]) if _is_gather(node) and node.inputs[0] is not None else None
        if layout is None:
            rewriter.keep(node)
            return
        inputs = (layout.matrix, node.inputs[1] and rewriter.value(node.inputs[1]))
        rewriter.keep(node, node.evolve(op=PANEL_ROWS, domain=DOMAIN, inputs=inputs, attrs=frozen_attrs(layout.attributes)))

    return rewrite(graph, visit).evolve(nodes=()) if panels else graph


def _is_gather(node: Node) -> bool:
    """True for a Gather of rows of a constant matrix."""
    if node.op != "Gather" or node.domain or int(node.attrs.get("axis", 0)) not in (0, -2) or node.inputs[0] is None:
        return False
    shape, result = real_shape(node.inputs[0]), any_shape(node[0])
    return node.inputs[0].node.value is not None and len(shape or ()) == 2 and bool(result) and 0 not in (result or ())


def _matrix_of(node: Node) -> tuple[NodeEntry | None, bool]:
    """The constant right matrix of a product, if any, and whether its rows are the product's columns."""
    if node.op not in ops("matmul") or node.domain or node.inputs[1] is None:
        return None, False
    before = before_turn(node.inputs[1].node)
    matrix = node.inputs[1] if before is None else before
    is_constant = matrix.node.value is not None and len(any_shape(matrix) or ()) == 2
    return matrix if is_constant else None, bool(node.attrs.get("transB", 0)) != (before is not None)


def _table_of(matrix: NodeEntry, turned: bool, tables: Collection[NodeEntry]) -> NodeEntry | None:
    """The table that a product's constant is, or is the transpose of."""
    if turned:
        return matrix if matrix in tables else None
    array = matrix.node.value
    assert array is not None
    alike = (table for table in tables if table.type is not None and any_shape(table) == array.shape[::-1])
    return next((table for table in alike if _is_transpose(table, matrix)), None)


def _is_transpose(table: NodeEntry, matrix: NodeEntry) -> bool:
    given, array = table.node.value, matrix.node.value
    assert given is not None and array is not None
    return element_of(table) == element_of(matrix) and given.dtype == array.dtype and np.array_equal(given.T, array)


def _cut_of(node: Node, machine: Machine) -> Cut | None:
    """The tiling of the kernel of a product by a constant; None if the kernel reads a modified copy of the constant."""
    shape, output = real_shape(node.inputs[0]), real_shape(node[0])
    if not shape or not output or 0 in (*shape, *output) or node.attrs.get("transA", 0):
        return None
    if element_of(node[0]) == "float32" and float(node.attrs.get("alpha", 1.0)) != 1.0:
        return None
    return Cut.of(element_of(node[0]), math.prod(output[:-1]), output[-1], shape[-1], machine)
