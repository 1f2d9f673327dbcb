"""An op alone: as a call of its body to be inlined, which is the decomposition of our table or ONNX's function, or as a graph
of its own."""

from __future__ import annotations

from partita.accelerators.interface.provenance import FUSED
from partita.graph.body_builder import NoBody, body_call
from partita.graph.build import CALL_DOMAIN, variable
from partita.graph.errors import UnknownOp
from partita.graph.graph import Graph
from partita.graph.microsoft import is_known, why_unknown
from partita.graph.node import Node, NodeEntry
from partita.graph.ops import is_random
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.single_node import graph_of_node
from partita.passes.decompose import decomposed, has_decomposition, has_function_of_onnx, onnx_function

EXPANDED = "Expanded"
"""The op of a call of such a body until it is inlined."""


def has_function(node: Node, graph: Graph) -> bool:
    """True for an op that the table decomposes, or that ONNX defines by a function."""
    if has_decomposition(node):
        return True
    if node.is_call or node.domain not in ("", "ai.onnx.ml") or node.bodies or is_random(node):
        return False
    return has_function_of_onnx(node, graph.opsets)


def expanded(node: Node, graph: Graph) -> Node | None:
    """A call of the op's body that replaces the node; None if there is no body for this opset and these inputs."""
    if not all(node.output_names):  # The body makes unused results too.
        node = node.evolve(output_names=tuple([name or f"{node.name}_{i}" for i, name in enumerate(node.output_names)]))
    try:
        body = decomposed(node, graph.opsets)
    except (NoBody, UnknownOp):  # The graph's opset may lack ops of the parts.
        return None
    read = None
    if body is None:
        body, read = onnx_function(node, graph.opsets)
    if body is None:
        return None
    return body_call(node, _marked(body, node), EXPANDED, read)


def why_whole(node: Node, graph: Graph) -> str | None:
    """The reason for which an onnxruntime op is not decomposed; None for one that is, and for all other ops."""
    if not is_known(node):
        return why_unknown(node)
    try:
        decomposed(node, graph.opsets)
    except NoBody as error:
        return error.cause
    return None


def is_expanded(node: Node) -> bool:
    """True for a call that `expanded` made."""
    return node.op == EXPANDED and node.domain == CALL_DOMAIN


def _marked(body: Graph, whole: Node) -> Graph:
    """The body with the name of the decomposed op in each node's metadata; nested parts carry all names."""
    names = "\n".join(dict.fromkeys([whole.name, *whole.metadata.get(FUSED, "").splitlines()]))

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node, rewriter.rebuilt(node, metadata={FUSED: names}) if node.is_op else node)

    return rewrite(body, visit)


def alone(node: Node, graph: Graph, *, constants: bool = True) -> Graph:
    """The graph of the node alone; its constants are kept, unless `constants` is False, and become inputs then."""

    def stand_in(entry: NodeEntry, number: int) -> NodeEntry:
        is_kept = constants and entry.node.value is not None
        return entry if is_kept else variable(f"x{number}", type=entry.type)[0]

    return graph_of_node(node, graph.opsets, stand_in)
