"""Prepares a subgraph before it is checked for support or compiled: shapes are inferred, constants and norms folded, and
unsupported ops decomposed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import numpy as np

from partita.accelerators.interface.cached_attention import says_what_it_is
from partita.accelerators.tvm.prepare.expanding import alone, expanded, has_function, is_expanded
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType, Type, numpy_dtype
from partita.passes import apply_pass
from partita.passes.registry import REQUESTS, register_pass

Stages = tuple[tuple[str, ...], ...]
"""Stages of passes; a query looks at the graph after each stage."""

PREPARE: Stages = (
    ("InlineCalls", "UseOnnxQuantizing", "RaiseOpset", "UseOnnxQuantizing"),
    ("FoldEmptyInputs",),
)
"""The first stages; then come `SETTLE` and each of `REPLACE`, with `SETTLE` again after one that changed the graph."""

SETTLE: Stages = (
    ("InferSizes", "HoldWeights"),
    ("FoldConstants",),
    ("SimplifyIdentities",),
    ("FoldBatchNorm",),
    ("MergeCommon",),
    ("EliminateDead",),
    ("InferMissingTypes",),
)

DEEPEST = 3
"""Largest depth of nested decompositions."""

REPLACE = ("FoldImplied", *["DecomposeUnsupported"] * DEEPEST)

Run = Callable[..., Graph]
"""(graph, names) -> the graph after these passes."""

Supports = Callable[[Node, Graph], "bool | str"]

_types_alone = ContextVar("types_alone", default=False)


@contextmanager
def types_alone() -> Iterator[None]:
    """Graphs prepared in this context are only checked for support: batch norms do not scale weights, to save memory."""
    token = _types_alone.set(True)
    try:
        yield
    finally:
        _types_alone.reset(token)


def prepared(graph: Graph, apply: Run, folds_implied: bool = True) -> Iterator[Graph]:
    """Inlines calls, then folds constants and shapes until nothing changes; yields the graph after each stage. `apply` applies
    passes; unless `folds_implied`, inputs whose values follow from sizes stay inputs."""
    for stage in PREPARE:
        graph = apply(graph, stage)
        yield graph
    graph = yield from _settling(graph, apply)
    for name in REPLACE:
        changed = apply(graph, (name,)) if folds_implied or name != "FoldImplied" else graph
        if changed is not graph:
            yield changed
            graph = yield from _settling(changed, apply)
        elif name == "DecomposeUnsupported":
            return


def _settling(graph: Graph, apply: Run) -> Generator[Graph, None, Graph]:
    for stage in SETTLE:
        options = {"scale_weights": not _types_alone.get()} if "FoldBatchNorm" in stage else {}
        graph = apply(graph, stage, **options)
        yield graph
    return graph


def _settled(graph: Graph) -> Graph:
    *_, settled = _settling(graph, partial(apply_pass, family="tvm", verify=False))
    return settled


@register_pass("InlineCalls", keeps=REQUESTS, family="tvm", essential=True)
def inline_all_calls(graph: Graph) -> Graph:
    """Calls replaced by their bodies, except those with a kernel of their own, such as attention with a cache."""
    return inline_calls(graph, lambda call: not says_what_it_is(call))


@register_pass("InferMissingTypes", keeps=REQUESTS, family="tvm")
def infer_missing_types(graph: Graph) -> Graph:
    """Types inferred, unless all sizes are static already."""
    types = (value_type for node in graph.nodes for value_type in node.output_types)
    if all(map(_is_known, types)):
        return graph
    return apply_pass(graph, "InferShape", verify=False, strict=False)


@register_pass("InferSizes", keeps=REQUESTS, family="tvm")
def infer_sizes(graph: Graph) -> Graph:
    """Types inferred, alternating with constant folding as long as more sizes become static: some follow from values that ONNX's
    inference does not compute, such as a remainder."""
    current = infer_missing_types(graph)
    unknown = _unknown(current) if all(_is_known(node.output_types[0]) for node in current.inputs) else 0
    while unknown:
        closer = infer_missing_types(apply_pass(current, "FoldConstants", verify=False))
        left = _unknown(closer)
        if left >= unknown:
            break
        current, unknown = closer, left
    return current


def _unknown(graph: Graph) -> int:
    """Number of values whose sizes are not static."""
    return sum(not _is_known(value_type) for node in graph.nodes for value_type in node.output_types)


def _is_known(value_type: Type | None) -> bool:
    return isinstance(value_type, TensorType) and value_type.is_static


@register_pass("FoldEmptyInputs", keeps=REQUESTS, family="tvm")
def fold_empty_inputs(graph: Graph) -> Graph:
    """Graph inputs without elements replaced by constants."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node)
        value_type = node.output_types[0] if node.is_variable else None
        if isinstance(value_type, TensorType) and value_type.is_static and value_type.shape is not None and 0 in value_type.shape:
            empty = np.empty(tuple(int(d or 0) for d in value_type.shape), numpy_dtype(value_type.dtype))
            rewriter.replace(node[0], constant(empty, f"{node.name}_empty")[0])

    return rewrite(graph, visit)


@register_pass("DecomposeUnsupported", keeps=REQUESTS, family="tvm")
def decompose_unsupported(graph: Graph, supports: Supports) -> Graph:
    """Unsupported ops replaced by their decompositions, if all ops of these are supported."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if node.is_op and has_function(node, graph) and supports(node, graph) is not True:
            parts = expanded(rebuilt, graph)
            if parts is not None and _all_supported(node, graph, supports, DEEPEST):
                rebuilt = parts
        rewriter.keep(node, rebuilt)

    return inline_calls(rewrite(graph, visit), is_expanded)


def _all_supported(node: Node, graph: Graph, supports: Supports, depth: int) -> bool:
    """True if each of the node's parts is supported, or its own parts are."""
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
