"""ONNX's Attention gives zeros to a query that sees nothing: its body clears that row of weights before they are multiplied.

A kernel of attention computes the softmax and the product in one. Therefore the row is cleared behind the product, where it is
as long as a head and not as all keys; then it is zeros also where a value is no finite number. Where nothing hides a key no row
is cleared."""

from __future__ import annotations

from collections import Counter

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite

VISIBLE = frozenset((0, 1, 2, 4, 5))
"""The inputs that hide no key: queries, keys and values, and those of the past."""

PLAIN = frozenset("scale softcap q_num_heads kv_num_heads qk_matmul_output_mode softmax_precision".split())
"""The attributes that hide none."""


def sees_all_keys(attention: Node) -> bool:
    """Does each query see all keys?"""
    hides = {name for name, value in attention.attrs.items() if name not in PLAIN and value != 0}
    return not hides and all(entry is None or i in VISIBLE for i, entry in enumerate(attention.inputs))


def with_rows_cleared_last(body: Graph, attention: Node) -> Graph:
    """The op's body, in which rows of weights that a condition clears are cleared behind their product, or not at all. Linear."""
    readers = Counter(entry for node in body.nodes for entry in node.inputs if entry is not None)
    readers.update(body.outputs)
    is_never_cleared = sees_all_keys(attention)

    def visit(node: Node, rewriter: Rewriter) -> None:
        clearing = _clearing(node)
        if clearing is not None and is_never_cleared:
            rewriter.keep(node, rewriter.rebuilt(node.evolve(inputs=(clearing.inputs[2], *node.inputs[1:]))))
            return
        if clearing is None or readers[clearing[0]] != 1:
            rewriter.keep(node)
            return
        condition, zero, weights = (None if entry is None else rewriter.value(entry) for entry in clearing.inputs)
        name, inputs = f"{node.name}_of_all_rows", (weights, rewriter.rebuilt(node).inputs[1])
        product = node.evolve(name=name, output_names=(name,), inputs=inputs)
        cleared = clearing.evolve(name=node.name, output_names=node.output_names, inputs=(condition, zero, product[0]))
        rewriter.keep(product)
        rewriter.keep(node, cleared)

    return rewrite(body, visit)


def _clearing(product: Node) -> Node | None:
    """The Where that makes zeros of rows that a product reads on its left, if there is one."""
    read = product.inputs[0] if product.op == "MatMul" else None
    if read is None or read.node.op != "Where" or read.node.inputs[0] is None:
        return None
    test = read.node.inputs[0].node
    largest = test.inputs[0].node if test.op == "Equal" and test.inputs[0] is not None else None
    is_of_rows = largest is not None and largest.op == "ReduceMax" and largest.attrs.get("keepdims", 1) == 1
    return read.node if is_of_rows else None
