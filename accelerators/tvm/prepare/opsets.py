"""Ops of other domains and older opsets that have an equal or a later definition of ONNX's.

onnxruntime's quantizer uses its own QuantizeLinear and DequantizeLinear for integer types that its opset lacks, and then for all
values of the model."""

from __future__ import annotations

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.microsoft import DOMAIN, is_known, needed_opset
from partita.graph.node import Node
from partita.graph.numerics.resize import COORDINATES_SINCE
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.passes import apply_pass
from partita.passes.registry import REQUESTS, register_pass


@register_pass("RaiseOpset", keeps=REQUESTS, family="tvm")
def raise_opset(graph: Graph) -> Graph:
    """The graph in the opset that its Upsamples and the decompositions of its com.microsoft ops need; unchanged if it cannot be
    converted."""
    needed = max((_needed(node) for node in graph.nodes), default=0)
    if needed <= graph.opset:
        return graph
    try:
        return apply_pass(graph, "ConvertOpset", opset=needed, verify=False)
    except PartitaError:
        return graph


def _needed(node: Node) -> int:
    if node.op == "Upsample" and not node.domain and len(node.inputs) < 2:
        return COORDINATES_SINCE
    return needed_opset(node) if is_known(node) else 0


ALONG_AN_AXIS = 13
"""The opset since which bytes may have a scale for each channel."""

OF_ALL_WIDTHS = 21
"""The opset since which 4 and 16 bits, and scales of float16, are allowed too."""


@register_pass("UseOnnxQuantizing", keeps=REQUESTS, family="tvm")
def use_onnx_quantizing(graph: Graph) -> Graph:
    """com.microsoft's QuantizeLinear and DequantizeLinear replaced by ONNX's if they mean the same. Linear."""
    version = graph.opset
    if not any(_is_plain(node, version) for node in graph.nodes):
        return graph

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        rewriter.keep(node, rebuilt.evolve(domain="") if _is_plain(node, version) else rebuilt)

    return rewrite(graph, visit)


def _is_plain(node: Node, version: int) -> bool:
    """True if this opset has the op for the node's element types."""
    if node.domain != DOMAIN or node.op not in ops("quantizing") or node.subgraph is not None:
        return False
    types = [entry.type for entry in (*node.reads, *node.outputs)]
    dtypes = {value_type.dtype for value_type in types if isinstance(value_type, TensorType)}
    is_narrow = dtypes <= {"uint8", "int8", "int32", "float32"} and all(isinstance(known, TensorType) for known in types)
    return version >= (ALONG_AN_AXIS if is_narrow else OF_ALL_WIDTHS)
