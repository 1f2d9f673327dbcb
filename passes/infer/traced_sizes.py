"""Integers that a file declares for sizes although these depend on symbolic sizes of inputs: they come from the example with
which an exporter traced the model."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import Dim, TensorType, Type
from partita.passes.infer import infer, without_declared
from partita.passes.infer.dim_symbols import generated, map_types

REMEDY = (
    "A number that a file states for a size holds for every call. If it is that of an example which the model was exported with, "
    "compile pt.apply_pass(graph, 'InferShape', trust_numbers=False)"
)
"""Remedy for such an integer that restricts a model to one size."""


def without_traced_numbers(graph: Graph) -> Graph:
    """The graph without declared integer sizes of ops' results that cannot be inferred; they are kept if nothing is known
    of the value otherwise. Runs inference twice."""
    followed = infer(without_declared(graph, frozenset()), strict=False)
    followed = map_types(followed, dict.fromkeys(generated(followed, [node[0].type for node in followed.inputs])))
    types = {node.name: node.output_types for node in followed.nodes}

    def visit(node: Node, rewriter: Rewriter) -> None:
        if not node.is_op:
            rewriter.keep(node)
            return
        stated = tuple([_followed(*pair) for pair in zip(node.output_types, types[node.name], strict=True)])
        rewriter.keep(node, rewriter.rebuilt(node, output_types=stated))

    return rewrite(graph, visit)


def without_claims(graph: Graph) -> Graph:
    """The graph with types inferred from its inputs alone; if there is none, with the declared element type."""
    followed = infer(without_declared(graph, frozenset()), strict=False)
    followed = map_types(followed, dict.fromkeys(generated(followed, [node[0].type for node in followed.inputs])))
    stated = {node.name: node.output_types for node in graph.nodes}

    def visit(node: Node, rewriter: Rewriter) -> None:
        pairs = zip(node.output_types, stated[node.name], strict=True)
        types = tuple([_of_unknown_sizes(old) if new is None else new for new, old in pairs])
        rewriter.keep(node, rewriter.rebuilt(node, output_types=types) if node.is_op else None)

    return rewrite(followed, visit)


def _of_unknown_sizes(stated: Type | None) -> Type | None:
    return TensorType(stated.dtype, None) if isinstance(stated, TensorType) else stated


def _followed(stated: Type | None, follows: Type | None) -> Type | None:
    """The declared type with inferred sizes in place of integers that cannot be inferred."""
    if not isinstance(stated, TensorType) or not isinstance(follows, TensorType) or stated.shape is None:
        return stated
    if follows.shape is None or len(follows.shape) != len(stated.shape):
        return stated
    sizes: list[Dim] = [
        new if isinstance(old, int) and not isinstance(new, int) else old
        for old, new in zip(stated.shape, follows.shape, strict=True)
    ]
    return TensorType(stated.dtype, tuple(sizes))
