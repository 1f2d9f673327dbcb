"""The report's notes on a quantized model: the products computed in integers, by which instruction, and why others are not."""

from __future__ import annotations

from collections.abc import Sequence

from partita.accelerators.tvm.bodies.packed import DOMAIN as PACKED
from partita.accelerators.tvm.bodies.quantized import is_weight
from partita.accelerators.tvm.bodies.stored_types import WIDE
from partita.accelerators.tvm.layouts.narrowing import listed
from partita.accelerators.tvm.machine.instructions import Used
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.passes.registry import LAYOUT_NOTES, REQUESTS, register_pass

PRODUCTS = ops("convolution", "matmul", "integer_product")
"""The ops that may be computed in integers."""


FOUND = "partita.products"
"""The graph attribute with the products of the graph before it is quantized."""


@register_pass("FindProducts", provides=(FOUND,), keeps=REQUESTS, family="tvm", essential=True)
def find_products(graph: Graph) -> Graph:
    """Records the products, for ReportProducts to compare with the quantized graph. Linear."""
    products = tuple([node for node in graph.nodes if node.op in PRODUCTS and not node.domain])
    return graph.evolve(attrs={**graph.attrs, FOUND: products})


@register_pass("ReportProducts", needs=(FOUND,), keeps=REQUESTS, family="tvm")
def report_products(graph: Graph, *, int8_by: Used | None = None) -> Graph:
    """A note of how many products are computed in integers, and on each of the others why it stays in float32. Linear."""
    notes, wide = quantized_notes(graph.attrs[FOUND], graph, int8_by)
    attributes = {name: value for name, value in graph.attrs.items() if name != FOUND}
    if notes:
        attributes[LAYOUT_NOTES] = (*graph.attrs.get(LAYOUT_NOTES, ()), *notes)
    noted = graph.evolve(attrs=attributes)

    def visit(node: Node, rewriter: Rewriter) -> None:
        reason = wide.get(node.name) if node.is_op else None
        rewriter.keep(node, None if reason is None else rewriter.rebuilt(node, metadata={**node.metadata, WIDE: reason}))

    return rewrite(noted, visit) if wide else noted


def quantized_notes(everything: Sequence[Node], after: Graph, used: Used | None) -> tuple[tuple[str, ...], dict[str, str]]:
    """The lines of the report for products and the graph made of them, and by product name the reason for float32; empty if no
    product reads quantized values. If some products are computed in integers, those that read nothing quantized are listed too.
    Linear."""
    products = [node for node in everything if _is_quantized(node)]
    if not products:
        return (), {}
    packed = {node.name for node in after.nodes if node.domain == PACKED}
    plain = {node.name for node in after.nodes if node.op in PRODUCTS and not node.domain}
    whole = [node for node in products if node.name not in plain and node.name not in packed]
    wide = {node.name: _reason(node) for node in (everything if whole else products) if node.name in plain}
    by_reason: dict[str, list[str]] = {}
    for name, reason in wide.items():
        by_reason.setdefault(reason, []).append(name)
    notes = [f"{counted(len(whole), 'product')} in integers, by {used if used is not None else 'portable code'}"] if whole else []
    stored = sum(node.name in packed for node in products)
    notes += [f"{counted(stored, 'product')} by weights that stay as they are stored"] if stored else []
    return (*notes, *(f"in float32, since {reason}: {listed(names)}" for reason, names in by_reason.items())), wide


def _is_quantized(node: Node) -> bool:
    dequantized = any(is_weight(entry) or _dequantized(entry) is not None for entry in node.inputs[:2])
    return node.op in ops("integer_product") or dequantized


def _dequantized(entry: NodeEntry | None) -> Node | None:
    """The DequantizeLinear that a value comes from."""
    return entry.node if entry is not None and entry.node.op == "DequantizeLinear" and not entry.node.domain else None


def _reason(node: Node) -> str:
    """Why a product of quantized values is computed in float32."""
    if node.op in ops("integer_product"):
        return "its integers are of a form that no kernel takes"
    if not _is_quantized(node):
        return "nothing that it reads is quantized"
    source = _dequantized(node.inputs[0])
    if source is None:
        return "what it reads is not quantized"
    integers, scale = source.inputs[0], source.inputs[1]
    if integers is not None and isinstance(integers.type, TensorType) and integers.type.dtype in ("int16", "uint16"):
        return "what it reads has 16 bits"
    if scale is not None and isinstance(scale.type, TensorType) and scale.type.shape not in ((), (1,)):
        return "what it reads has several scales"
    if not is_weight(node.inputs[1]) and _dequantized(node.inputs[1]) is None:
        return "its weights are not quantized"
    return "no kernel of integers has its form, or 32 bits might not hold its sums"
