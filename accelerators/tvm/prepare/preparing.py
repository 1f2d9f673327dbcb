"""What happens to a subgraph before it is asked about or compiled: shapes and constants are worked out, norms folded, and ops
that TVM has only the parts of are taken apart."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np

from accelerators.tvm.prepare.expanding import expanded, has_function, is_expanded
from accelerators.tvm.prepare.implied import name_implied
from accelerators.tvm.prepare.single import alone
from accelerators.tvm.prepare.weights import hold_weights
from graph.build import constant
from graph.graph import Graph
from graph.inline import inline_calls
from graph.node import Node
from graph.rewrite import Rewriter, rewrite
from graph.types import TensorType, numpy_dtype
from passes import apply_pass

PASSES = ("FoldConstants", "SimplifyIdentities", "FoldBatchNorm", "MergeCommon", "EliminateDead")

DEEPEST = 3
"""Parts may be taken apart in turn, so many times."""

Supports = Callable[[Node, Graph], "bool | str"]


def prepared(graph: Graph, supports: Supports) -> Iterator[Graph]:
    """The graph without calls, then with what its constants and shapes settle settled, step by step."""
    made = inline_calls(graph)
    yield made
    made = hold_weights(_empties_known(made))
    yield made
    made = yield from _settling(made)
    named = name_implied(made)
    if named is not made:
        yield named
        made = yield from _settling(named)
    for _ in range(DEEPEST):
        taken = _taken_apart(made, supports)
        if taken is made:
            return
        yield taken
        made = yield from _settling(taken)


def _settling(graph: Graph) -> Generator[Graph, None, Graph]:
    made = _typed(graph)
    yield made
    for name in PASSES:
        made = apply_pass(made, name, verify=False)
        yield made
    made = _typed(made)
    yield made
    return made


def _settled(graph: Graph) -> Graph:
    *_, made = _settling(graph)
    return made


def _typed(graph: Graph) -> Graph:
    """The graph with the types that follow; as it is where all sizes are known already."""
    if all(isinstance(made, TensorType) and made.is_static for node in graph.nodes for made in node.output_types):
        return graph
    return apply_pass(graph, "InferShape", verify=False, strict=False)


def _empties_known(graph: Graph) -> Graph:
    """What has no elements has a known value: readers of such an input read a constant."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node)
        made = node.output_types[0] if node.is_variable else None
        if isinstance(made, TensorType) and made.is_static and made.shape is not None and 0 in made.shape:
            empty = np.empty(tuple(int(d or 0) for d in made.shape), numpy_dtype(made.dtype))
            rewriter.replace(node[0], constant(empty, f"{node.name}_empty")[0])

    return rewrite(graph, visit)


def _taken_apart(graph: Graph, supports: Supports) -> Graph:
    """Each op that is not supported, but whose parts all are, as its parts."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        made = rewriter.rebuilt(node)
        if node.is_op and has_function(node, graph) and supports(node, graph) is not True:
            parts = expanded(made, graph)
            if parts is not None and _all_supported(node, graph, supports, DEEPEST):
                made = parts
        rewriter.keep(node, made)

    return inline_calls(rewrite(graph, visit), is_expanded)


def _all_supported(node: Node, graph: Graph, supports: Supports, depth: int) -> bool:
    """Are all the node's parts supported, or theirs in turn?"""
    single = alone(node, graph)
    parts = expanded(next(n for n in single.nodes if n.is_op), single)
    if parts is None:
        return False
    whole = _settled(inline_calls(Graph(list(parts.outputs), single.inputs, "parts", graph.opsets)))
    for part in whole.nodes:
        if part.is_op and supports(part, whole) is not True:
            if depth <= 1 or not has_function(part, whole) or not _all_supported(part, whole, supports, depth - 1):
                return False
    return True
