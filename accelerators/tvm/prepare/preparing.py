"""Prepares a subgraph before it is asked about or compiled: shapes and constants are worked out, norms are folded, and
ops that TVM has only the parts of are taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from partita.accelerators.interface.cached_attention import says_what_it_is
from partita.accelerators.tvm.prepare.expanding import expanded, has_function, is_expanded
from partita.accelerators.tvm.prepare.implied import name_implied
from partita.accelerators.tvm.prepare.newer_opset import new_enough
from partita.accelerators.tvm.prepare.plain_quantizing import with_plain_quantizing
from partita.accelerators.tvm.prepare.quantized_weights import hold_weights
from partita.accelerators.tvm.prepare.single import alone
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType, Type, numpy_dtype
from partita.passes import apply_pass

PASSES = ("FoldConstants", "SimplifyIdentities", "FoldBatchNorm", "MergeCommon", "EliminateDead")

DEEPEST = 3
"""Parts may be taken apart in turn, so many times."""

Supports = Callable[[Node, Graph], "bool | str"]

_types_alone = ContextVar("types_alone", default=False)


@contextmanager
def types_alone() -> Iterator[None]:
    """What is prepared inside is only asked about: weights that a batch norm scales stay as they are, which takes no memory."""
    token = _types_alone.set(True)
    try:
        yield
    finally:
        _types_alone.reset(token)


def prepared(graph: Graph, supports: Supports, name: Callable[[Graph], Graph] = name_implied) -> Iterator[Graph]:
    """The graph without calls, then with what its constants and shapes settle settled, step by step. `name` puts constants in the
    place of values that follow from sizes."""
    plain = with_plain_quantizing(inline_calls(graph, lambda call: not says_what_it_is(call)))
    current = with_plain_quantizing(new_enough(plain))
    yield current
    current = _empties_known(current)
    yield current
    current = yield from _settling(current)
    named = name(current)
    if named is not current:
        yield named
        current = yield from _settling(named)
    for _ in range(DEEPEST):
        taken = _taken_apart(current, supports)
        if taken is current:
            return
        yield taken
        current = yield from _settling(taken)


def _settling(graph: Graph) -> Generator[Graph, None, Graph]:
    current = hold_weights(_sized(graph))
    yield current
    for name in PASSES:
        options: dict[str, Any] = {"scale_weights": False} if name == "FoldBatchNorm" and _types_alone.get() else {}
        current = apply_pass(current, name, verify=False, **options)
        yield current
    current = _typed(current)
    yield current
    return current


def _settled(graph: Graph) -> Graph:
    *_, settled = _settling(graph)
    return settled


def _typed(graph: Graph) -> Graph:
    """The graph with the types that can be inferred; the graph itself where all sizes are known already."""
    types = (value_type for node in graph.nodes for value_type in node.output_types)
    if all(map(_is_known, types)):
        return graph
    return apply_pass(graph, "InferShape", verify=False, strict=False)


def _sized(graph: Graph) -> Graph:
    """The graph typed. Where the inputs' sizes are known and others are not, these may follow from values that ONNX's inference
    does not work out, as a remainder of a size, and that folding does: both go on in turn, as long as that tells more."""
    current = _typed(graph)
    unknown = _unknown(current) if all(_is_known(node.output_types[0]) for node in current.inputs) else 0
    while unknown:
        closer = _typed(apply_pass(current, "FoldConstants", verify=False))
        left = _unknown(closer)
        if left >= unknown:
            break
        current, unknown = closer, left
    return current


def _unknown(graph: Graph) -> int:
    """How many values have sizes that are not known."""
    return sum(not _is_known(value_type) for node in graph.nodes for value_type in node.output_types)


def _is_known(value_type: Type | None) -> bool:
    return isinstance(value_type, TensorType) and value_type.is_static


def _empties_known(graph: Graph) -> Graph:
    """The graph with a constant for each input without elements, because the value of such an input is known."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node)
        value_type = node.output_types[0] if node.is_variable else None
        if isinstance(value_type, TensorType) and value_type.is_static and value_type.shape is not None and 0 in value_type.shape:
            empty = np.empty(tuple(int(d or 0) for d in value_type.shape), numpy_dtype(value_type.dtype))
            rewriter.replace(node[0], constant(empty, f"{node.name}_empty")[0])

    return rewrite(graph, visit)


def _taken_apart(graph: Graph, supports: Supports) -> Graph:
    """The graph in which an op that is not supported gives way to its parts, if all of them are."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if node.is_op and has_function(node, graph) and supports(node, graph) is not True:
            parts = expanded(rebuilt, graph)
            if parts is not None and _all_supported(node, graph, supports, DEEPEST):
                rebuilt = parts
        rewriter.keep(node, rebuilt)

    return inline_calls(rewrite(graph, visit), is_expanded)


def _all_supported(node: Node, graph: Graph, supports: Supports, depth: int) -> bool:
    """Are all the node's parts supported, or theirs in turn?"""
    single = alone(node, graph)
    parts = expanded(next(n for n in single.nodes if n.is_op), single)
    if parts is None:
        return False
    outputs = [entry for entry, name in zip(parts.outputs, node.output_names, strict=True) if name]
    whole = _settled(inline_calls(Graph(outputs, single.inputs, "parts", graph.opsets)))
    for part in whole.nodes:
        if part.is_op and supports(part, whole) is not True:
            if depth <= 1 or not has_function(part, whole) or not _all_supported(part, whole, supports, depth - 1):
                return False
    return True
