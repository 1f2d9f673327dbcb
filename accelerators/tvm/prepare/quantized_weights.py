"""Weights that a model stores as integers: kept until integer kernels are chosen; the others are dequantized at compile time.

Without this they would be dequantized in every run, since constant folding does not enlarge constants beyond its limit."""

from __future__ import annotations

from collections.abc import Sequence

from partita.accelerators.tvm.bodies.quantized import DOMAIN, WEIGHT
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.interpret import evaluate_node
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.registry import REQUESTS, register_pass


@register_pass("HoldWeights", keeps=REQUESTS, family="tvm")
def hold_weights(graph: Graph) -> Graph:
    """Keeps DequantizeLinear of a constant that a product or Gather reads, perhaps transposed, from being folded. Constants that
    the model quantizes itself are quantized here. Linear."""
    wanted = {entry for node in graph.nodes if not node.domain for entry in _weights_read(node)}
    turned = {node.inputs[0] for node in graph.nodes if node.op == "Transpose" and not node.domain and node[0] in wanted}
    wanted |= {entry for entry in turned if entry is not None}

    stored = {node.inputs[0] for node in graph.nodes if node.op == "DequantizeLinear" and node[0] in wanted}

    def visit(node: Node, rewriter: Rewriter) -> None:
        if node.op == "QuantizeLinear" and not node.domain and node[0] in stored and all(map(_is_constant, node.reads)):
            rewriter.replace(node[0], rewriter.keep(_computed(node, graph))[0])
            return
        rebuilt = rewriter.rebuilt(node)
        held = node[0] in wanted if _is_dequantized_constant(rebuilt) else False
        rewriter.keep(node, rebuilt.evolve(op=WEIGHT, domain=DOMAIN) if held else rebuilt)

    return rewrite(graph, visit)


def _computed(node: Node, graph: Graph) -> Node:
    """The result of an op on constants, as a constant with the op's name."""
    arrays = [None if entry is None else entry.node.value for entry in node.inputs]
    (array,) = evaluate_node(node, arrays, graph.opsets)
    return constant(array, node.name).evolve(output_names=node.output_names, metadata=node.metadata)


def _weights_read(node: Node) -> Sequence[NodeEntry]:
    """The operands that a kernel of the node may read as integers: all of a product's, and the table of a Gather."""
    return node.reads if node.op in ops("convolution", "matmul") else node.reads[:1] if node.op == "Gather" else ()


@register_pass("ReleaseWeights", keeps=REQUESTS, family="tvm", essential=True)
def release_weights(graph: Graph) -> Graph:
    """Quantized constants that no integer kernel took, dequantized. Linear."""
    released: set[NodeEntry] = set()

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if rebuilt.op == "Transpose" and not rebuilt.domain and rebuilt.inputs[0] in released:
            rewriter.replace(node[0], _computed(rebuilt, graph)[0])
            return
        plain = node.evolve(op="DequantizeLinear", domain="") if node.domain == DOMAIN and node.op == WEIGHT else node
        if not _is_dequantized_constant(plain):
            rewriter.keep(node, rebuilt)
            return
        numbers = _computed(plain, graph)[0]
        rewriter.replace(node[0], numbers)
        released.add(numbers)

    return rewrite(graph, visit)


def _is_dequantized_constant(node: Node) -> bool:
    """True for a DequantizeLinear of constants."""
    return node.op == "DequantizeLinear" and not node.domain and all(_is_constant(entry) for entry in node.reads)


def _is_constant(entry: NodeEntry) -> bool:
    return entry.node.value is not None
