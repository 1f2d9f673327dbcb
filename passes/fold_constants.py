"""FoldConstants: evaluates nodes that depend on constants alone."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Any

import attrs
import numpy as np

from partita.graph.build import CALL_DOMAIN
from partita.graph.errors import PartitaError
from partita.graph.flops import einsum_products
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.interpret import evaluate_node
from partita.graph.names import unique
from partita.graph.node import Node, NodeEntry
from partita.graph.ops import is_random
from partita.graph.ops.traits import FILTERS, ops, traits
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.graph.types import TensorType, dtype_name, numpy_dtype
from partita.passes.bodies import control_targets, everywhere, holds_body, without_captures
from partita.passes.constants import as_constant, made_constant
from partita.passes.infer import infer
from partita.passes.infer.contract import require_fit
from partita.passes.infer.shape_arithmetic import ShapeArithmetic
from partita.passes.registry import REQUESTS, register_pass

LIMIT = 16 << 20
"""Maximum bytes of the outputs of a folded node."""

GROWTH = 1 << 20
"""Maximum bytes of a folded node's outputs beyond those of its inputs: a file should not swell by values that are
cheap to compute."""

MOST = 1 << 28
"""Maximum number of elements that numpy touches for a node; a larger one is left to a device."""


STEP = 1000
"""Elements that numpy processes in the time of one Python step."""

GATES = 50
"""Approximate number of Python steps per step of a recurrent op."""


@register_pass("FoldConstants", keeps=("shape", "dtype", *REQUESTS))
def fold_constants(
    g: Graph,
    *,
    limit: int = LIMIT,
    growth: int = GROWTH,
    factor: int = 1,
    shapes: bool = True,
    only: Container[str] | None = None,
) -> Graph:
    """Replaces nodes whose inputs are all constant by their values, shape arithmetic on static sizes by its results, and an If
    with a constant condition by its branch. Constants that bodies capture become constants inside them.

    A node stays if it is random, has a body, cannot be computed in numpy or gives no tensors, or if it would take seconds
    (see `labour`), and so does a node whose outputs would take more than `limit` bytes, or `growth` bytes more than
    `factor` times its inputs. Sizes are determined before anything is computed: from the types, or else by inference on the
    single node. With `shapes=False` shape arithmetic and conditions stay. `only` has the names of nodes that may be replaced.
    Linear in nodes, plus the computing."""
    options = _Options(limit, growth, factor, shapes, only)
    while True:
        folded = _everywhere(g, options)
        g = inline_calls(folded, _is_branch)
        if g is folded:
            return g


@attrs.frozen(slots=True)
class _Options:
    """The options of the pass."""

    limit: int
    growth: int
    factor: int
    shapes: bool
    only: Container[str] | None

    def may_replace(self, node: Node) -> bool:
        """True if `only` allows the node."""
        return self.only is None or node.name in self.only


def _everywhere(g: Graph, options: _Options) -> Graph:
    return everywhere(g, lambda body: _fold_all(body, options))


def _fold_all(g: Graph, options: _Options) -> Graph:
    pinned = control_targets(g)
    shapes = ShapeArithmetic() if options.shapes else None
    names = {node.name for node in g.nodes}

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if options.shapes and node.op == "If":
            rebuilt = _decided(rebuilt)
        known = rebuilt.captures and {i: e.node for i, e in enumerate(rebuilt.captures) if e.node.value is not None}
        if known:
            rebuilt = map_bodies(without_captures(rebuilt, known), lambda body: _everywhere(body, options))
        arrays = None
        if _may_go(rebuilt) and node not in pinned and options.may_replace(node):
            arrays = _folded(rebuilt, g, shapes, options)
        if arrays is None:
            rewriter.keep(node, rebuilt)
            return
        for entry, array in zip(node.outputs, arrays, strict=True):
            if entry.name:
                rewriter.replace(entry, _constant(entry, array, names)[0])

    return rewrite(g, visit)


def _may_go(node: Node) -> bool:
    return node.is_op and not node.after and node.subgraph is None and not holds_body(node)


def ops_of_constants(g: Graph) -> dict[Node, None]:
    """The ops that read only constants or each other, in order, except random ones and those with bodies. Linear."""
    pinned = control_targets(g)
    ops: dict[Node, None] = {}
    for node in g.nodes:
        read = [entry.node for entry in node.inputs if entry is not None]
        if (
            read
            and _may_go(node)
            and node not in pinned
            and not is_random(node)
            and all(other.value is not None or other in ops for other in read)
        ):
            ops[node] = None
    return ops


_BRANCH = "Branch"
"""The op of a call of an If's chosen branch, until it is inlined."""


def _decided(node: Node) -> Node:
    """A call of the branch that a constant condition chooses; any other node unchanged."""
    condition = (
        as_constant(node.inputs[0]) if node.op == "If" and not node.domain and not node.after else None
    )
    if condition is None or condition.size != 1:
        return node
    branch = node.attrs["then_branch" if condition.item() else "else_branch"]
    return node.evolve(
        op=_BRANCH, domain=CALL_DOMAIN, inputs=node.captures, captures=(), attrs={}, subgraph=branch
    )


def _is_branch(node: Node) -> bool:
    return node.op == _BRANCH and node.domain == CALL_DOMAIN


def _folded(
    node: Node, g: Graph, shapes: ShapeArithmetic | None, options: _Options
) -> list[np.ndarray[Any, Any]] | None:
    """The node's outputs, or None if they are not folded."""
    known = None if shapes is None else shapes.learn(node, g.opset)
    if known is not None:
        return known
    if (
        not node.inputs
        or [entry for entry in node.inputs if entry is not None and entry.node.value is None]
        or is_random(node)
        or labour(node) > MOST
    ):
        return None
    read = sum(
        entry.node.value.nbytes for entry in node.inputs if entry is not None and entry.node.value is not None
    )
    size = _output_bytes(node, g)
    if size is None or size > options.limit or size > options.factor * read + options.growth:
        return None
    return _computed(node, g)


def _computed(node: Node, g: Graph) -> list[np.ndarray[Any, Any]] | None:
    """The outputs computed by numpy; None if it cannot, or if they contradict the types."""
    try:
        results = evaluate_node(node, [as_constant(entry) for entry in node.inputs], g.opsets, check=require_fit)
    except PartitaError:
        return None
    arrays = []
    for entry, value in zip(node.outputs, results, strict=True):
        if entry.name and not (isinstance(value, np.ndarray) and _agrees(entry, value)):
            return None
        arrays.append(value)
    return arrays


def _agrees(entry: NodeEntry, array: np.ndarray[Any, Any]) -> bool:
    known = entry.type
    if known is None:
        return True
    if not isinstance(known, TensorType) or known.dtype != dtype_name(array.dtype):
        return False
    if known.shape is None:
        return True
    return len(known.shape) == array.ndim and all(
        not isinstance(a, int) or a == b for a, b in zip(known.shape, array.shape, strict=True)
    )


def _constant(entry: NodeEntry, array: np.ndarray[Any, Any], names: set[str]) -> Node:
    """A constant that replaces the node: it has its place, and the value's name."""
    node = entry.node
    alone = sum(map(bool, node.output_names)) == 1
    if not (array.flags.owndata and array.flags.c_contiguous):
        array = np.array(array, copy=True, order="C")
    name = node.name if alone else unique(entry.name, names)
    return made_constant(array, name, node).evolve(output_names=(entry.name,))


def _output_bytes(node: Node, g: Graph) -> int | None:
    """Bytes of the outputs, without computing them; None if unknown."""
    if not _all_static(node):
        node = _inferred(node, g)
    if _all_static(node):
        return sum(_bytes(entry.type) for entry in node.outputs if entry.name)
    if node.op in _BOUNDED and not node.domain:
        sizes = [
            entry.node.value.size
            for entry in node.inputs
            if entry is not None and entry.node.value is not None
        ]
        return 8 * sum(sizes) * max(2, *(_rank(entry) for entry in node.inputs))
    return _bytes_of_range(node) if node.op == "Range" and not node.domain else None


def _bytes_of_range(node: Node) -> int | None:
    """Bytes of a Range of constants, which may be tensors of one element: ONNX's function of AffineGrid has these, but
    its inference only types scalars."""
    values = [as_constant(entry) for entry in node.inputs]
    if any(value is None or value.size != 1 for value in values):
        return None
    start, limit, step = (value.item() for value in values if value is not None)
    count = (limit - start) / step if step else math.inf
    return math.ceil(max(count, 0)) * (values[0].itemsize if values[0] is not None else 1) if math.isfinite(count) else None


_BOUNDED = ops("counting") - {"StringSplit"}
"""Ops with data-dependent output sizes, which are bounded by the input's size times its rank."""


def _rank(entry: NodeEntry | None) -> int:
    """The rank of a constant."""
    value = as_constant(entry)
    return 0 if value is None else value.ndim


def _all_static(node: Node) -> bool:
    return all(isinstance(e.type, TensorType) and e.type.is_static for e in node.outputs if e.name)


def _bytes(known: Any) -> int:
    return math.prod(known.shape) * numpy_dtype(known.dtype).itemsize


def _inferred(node: Node, g: Graph) -> Node:
    """The node with types inferred from it and its constants alone."""
    alone = Graph([entry for entry in node.outputs if entry.name], opsets=g.opsets)
    try:
        return next(n for n in infer(alone).nodes if n.name == node.name)
    except PartitaError:
        return node


def labour(node: Node) -> float:
    """Estimated number of elements that numpy touches, if there are more than the sizes suggest; infinity without a static bound.

    A file of a hundred bytes may declare a pool whose window is larger than any image, or trees with cycles."""
    if "endless" in traits(str(node.op), node.domain):
        return math.inf
    if node.op == "Einsum" and not node.domain:
        products = einsum_products(node)
        return math.inf if products is None else products
    if node.op == "LRN" and not node.domain:
        return int(node.attrs["size"]) * (_elements(node, 0) + STEP)
    if node.op in ops("recurrent") and not node.domain:
        return GATES * STEP * math.prod(_sizes(node, 0)[:2])
    weights = FILTERS.get(str(node.op))
    if node.domain or (weights is None and node.op not in ops("pool")):
        return 0
    kernel = node.attrs.get("kernel_shape", ()) if weights is None else _sizes(node, weights)[2:]
    return _padded(node, kernel) + math.prod(kernel) * (_elements(node, 0) + STEP)


def _padded(node: Node, kernel: tuple[int, ...]) -> float:
    """The elements of the first input including padding and the span of a dilated window."""
    sizes, rank = _sizes(node, 0), len(kernel)
    pads = [abs(int(pad)) for pad in node.attrs.get("pads", ()) or (0,) * (2 * rank)]
    dilations = [int(d) for d in node.attrs.get("dilations", ()) or (1,) * rank]
    spans = [
        size + before + after + kernel_size * dilation
        for size, before, after, kernel_size, dilation in zip(sizes[2:], pads[:rank], pads[rank:], kernel, dilations)
    ]
    return math.prod(sizes[:2]) * math.prod(spans)


def _sizes(node: Node, position: int) -> tuple[int, ...]:
    entry = node.inputs[position] if position < len(node.inputs) else None
    value_type = None if entry is None else entry.type
    return tuple(int(size or 0) for size in (value_type.shape or ())) if isinstance(value_type, TensorType) else ()  # type: ignore[arg-type]


def _elements(node: Node, position: int) -> int:
    return math.prod(_sizes(node, position))
