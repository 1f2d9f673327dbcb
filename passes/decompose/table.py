"""The decomposition table: the body of simpler ops for an op, by domain, op and opset."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from partita.graph.body_builder import BodyBuilder, NoBody
from partita.graph.graph import Graph
from partita.graph.microsoft import body_of, is_known, needed_opset
from partita.graph.node import Node
from partita.passes.decompose import einsum, moves, products, quantized, reductions, resizing
from partita.passes.decompose.halves import in_single_precision, is_widened


def _always(node: Node) -> bool:
    return True


@attrs.frozen(slots=True)
class Row:
    """One decomposition of an op of ONNX's."""

    op: str
    body: Callable[[BodyBuilder], Graph | None]
    """Writes the body; returns None or raises NoBody for a node that it does not fit."""
    since: int = 1
    """The lowest opset that has the ops of the body."""
    applies: Callable[[Node], bool] = _always
    """False for nodes of the op that this row never decomposes."""


ROWS = (
    Row("Concat", moves.concat),
    Row("Conv", products.patches, since=10, applies=products.is_of_patches),
    Row("ConvInteger", products.integer_product),
    Row("DequantizeLinear", quantized.blocks, applies=quantized.has_blocks),
    Row("Einsum", einsum.einsum),
    Row("GlobalMaxPool", reductions.global_max_pool),
    Row("GridSample", moves.grid_sample),
    Row("GroupNormalization", reductions.group_normalization),
    Row("Hardmax", moves.hardmax, since=13),
    Row("LayerNormalization", reductions.layer_normalization),
    Row("MatMulInteger", products.integer_product),
    Row("MeanVarianceNormalization", reductions.mean_variance_normalization),
    Row("OneHot", moves.one_hot, since=16),
    Row("QLinearConv", quantized.linear),
    Row("QLinearMatMul", quantized.linear),
    Row("QuantizeLinear", quantized.blocks, applies=quantized.has_blocks),
    Row("ReduceLogSumExp", reductions.log_sum_exp, since=9),
    Row("Resize", resizing.resize),
    Row("RotaryEmbedding", moves.rotary_embedding, applies=lambda node: not is_widened(node)),
    Row("Shrink", moves.shrink),
    Row("TopK", moves.top_k, since=11),
    Row("Upsample", resizing.resize),
    *(Row(op, reductions.unreduced) for op in reductions.UNREDUCED),
)

_BY_OP = {row.op: row for row in ROWS}


def has_decomposition(node: Node) -> bool:
    """True for an op that the table decomposes, for some types and values of its inputs."""
    if is_known(node):
        return True
    row = _BY_OP.get(str(node.op)) if not node.domain else None
    return (row is not None and row.applies(node)) or is_widened(node)


def decomposed(node: Node, opsets: Mapping[str, int]) -> Graph | None:
    """The op's body, its inputs named x0, x1, … by index in the node; None if there is none, NoBody if for an onnxruntime op.

    The body of a half-precision op that has no other is the op itself in float32."""
    version = opsets.get("", 1)
    if is_known(node):
        if needed_opset(node) > version:
            needed = f"its parts are ops of opset {needed_opset(node)}, and the graph's is {version}"
            raise NoBody(needed, where=f"node {node.name!r}")
        b = BodyBuilder(node, opsets)
        return body_of(node, b.types, b.values, version).evolve(opsets=opsets)
    row = _BY_OP.get(str(node.op)) if not node.domain else None
    if row is not None and version >= row.since and row.applies(node):
        try:
            body = row.body(BodyBuilder(node, opsets))
        except NoBody:
            body = None
        if body is not None:
            return body
    return in_single_precision(BodyBuilder(node, opsets)) if is_widened(node) else None
