"""Decomposes each Gemm that the kernel for constant matrices does not support into ops that have kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.accelerators.interface.provenance import FUSED
from partita.accelerators.tvm.bodies.body import element_of
from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.graph.build import constant, op
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.passes.constants import Namer
from partita.passes.registry import REQUESTS, register_pass


@register_pass("SpreadGemms", keeps=REQUESTS, family="tvm")
def spread_gemms(graph: Graph) -> Graph:
    """Gemm of two computed matrices, or of a transposed first one, as MatMul, Transpose, Mul and Add."""

    if all(node.op != "Gemm" for node in graph.nodes):
        return graph
    namer = Namer(graph)

    def visit(node: Node, rewriter: Rewriter) -> None:
        spread = _spread(node, rewriter, namer) if node.op == "Gemm" and not node.domain else None
        if spread is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node[0], spread)

    return rewrite(graph, visit)


def _spread(node: Node, rewriter: Rewriter, namer: Namer) -> NodeEntry | None:
    left, right, third = (*node.inputs, None)[:3]
    shape = real_shape(node[0])
    if left is None or right is None or shape is None or (right.node.value is not None and not node.attrs.get("transA", 0)):
        return None
    metadata = {FUSED: node.name}

    def typed(kind: str, suffix: str, size: tuple[int, ...], *inputs: NodeEntry, **attributes: Any) -> NodeEntry:
        types = (TensorType(element_of(node[0]), size),)
        name = namer(f"{node.name}_{suffix}") if suffix else node.name
        names = (name if suffix else node[0].name,)
        new = op(kind, *inputs, name=name, output_names=names, **attributes)
        return new.evolve(output_types=types, metadata=metadata)[0]

    def side(entry: NodeEntry, flag: str) -> NodeEntry:
        value, size = rewriter.value(entry), real_shape(entry) or ()
        return typed("Transpose", flag, size[::-1], value, perm=[1, 0]) if node.attrs.get(flag, 0) else value

    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    added = third is not None and beta != 0.0
    product = typed("MatMul", "product" if added or alpha != 1.0 else "", shape, side(left, "transA"), side(right, "transB"))
    if alpha != 1.0:
        factor = constant(np.float32(alpha), namer(f"{node.name}_alpha"))[0]
        product = typed("Mul", "scaled" if added else "", shape, product, factor)
    if not added or third is None:
        return product
    rest = rewriter.value(third)
    if beta != 1.0:
        rest = typed("Mul", "rest", real_shape(third) or (), rest, constant(np.float32(beta), namer(f"{node.name}_beta"))[0])
    return typed("Add", "", shape, product, rest)
