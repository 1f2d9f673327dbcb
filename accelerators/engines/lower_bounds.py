"""Lower bounds of the sizes of a graph's values while every input of the graph has elements.

Symbols that a file states are not believed: the sizes of an op's results follow from those of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import FILTERS, ops
from partita.graph.symbols import least, symbol
from partita.graph.types import TensorType
from partita.passes import apply_pass
from partita.passes.infer import without_declared
from partita.passes.infer.reading import Reading
from partita.passes.infer.shape_operands import deciding, follows_from_sizes

Sizes = tuple[int, ...]
"""The lower bound of each dimension."""


_KEEPING = ops(*"unary broadcast reduction arg_reduction global_pool softmax norm quantizing matmul reshape".split())
"""The ops whose first result has elements wherever all operands have."""


def least_sizes(graph: Graph, resized: bool = False) -> Mapping[NodeEntry, Sizes]:
    """The lower bounds of each tensor of known rank. `resized`: the engine raises an error where a Resize is given a size of
    zero."""
    bounds: dict[NodeEntry, Sizes] = {}
    read = _sizes_read(graph)
    for node in graph.nodes:
        for index, entry in enumerate(node.outputs):
            if not entry.name or not isinstance(entry.type, TensorType) or entry.type.shape is None:
                continue
            sizes = read.get(entry, ())
            if len(sizes) != len(entry.type.shape):
                sizes = (0,) * len(entry.type.shape)
            is_filled = 0 in sizes and _keeps_elements(node, index, resized) and all(has_elements(e, bounds) for e in node.reads)
            bounds[entry] = tuple([max(size, 1) for size in sizes]) if is_filled else sizes
    return bounds


def _sizes_read(graph: Graph) -> Mapping[NodeEntry, Sizes]:
    """The bounds that follow from the rules of ops."""
    believed = graph
    if not all(map(_follows, graph.nodes)):
        believed = without_declared(graph, frozenset())
        with suppress(PartitaError):  # What the file states hid an error, which is one of each run.
            believed = apply_pass(believed, "InferShape", verify=False, strict=False)
    try:
        reading = Reading(believed, [_filled(node) for node in graph.inputs], exact=True)
    except PartitaError:  # The sizes contradict each other: no run makes anything.
        return {}
    nodes = zip(graph.nodes, believed.nodes, strict=True)
    pairs = [(entry, reading.sizes(other)) for node, same in nodes for entry, other in zip(node.outputs, same.outputs)]
    return {entry: tuple([max(least(size) or 0, 0) for size in sizes]) for entry, sizes in pairs if sizes is not None}


def _filled(node: Node) -> tuple[Any, ...] | None:
    """The sizes of an input, of which each has a symbol of its own, and is 1 or more."""
    shape = node[0].type.shape if isinstance(node[0].type, TensorType) else None
    if shape is None:
        return None
    return tuple([size if isinstance(size, int) else symbol(f"{node.name}[{d}]") + 1 for d, size in enumerate(shape)])


def _follows(node: Node) -> bool:
    """True if the sizes of the results surely follow from static sizes."""
    if node.is_variable:
        return isinstance(node[0].type, TensorType) and node[0].type.is_static
    if node.domain or node.bodies or node.is_call or node.op in ops("counting"):
        return False
    return all(map(follows_from_sizes, deciding(node)))


def _keeps_elements(node: Node, index: int, resized: bool) -> bool:
    """True if the result has elements wherever all operands have."""
    if node.domain or node.bodies or node.is_call or not node.reads:
        return False
    if node.op == "Resize":
        return resized and len(node.inputs) > 3 and node.inputs[3] is not None
    return index == 0 and node.op in _KEEPING


def has_elements(entry: NodeEntry, least: Mapping[NodeEntry, Sizes]) -> bool:
    """True if the value has elements whenever the graph's inputs have."""
    return entry in least and 0 not in least[entry]


def shortfalls(node: Node, kernel: Sequence[int]) -> list[int] | None:
    """For each dimension of an image, the size of the window minus the padding; None if the padding is automatic."""
    if node.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    rank = len(kernel)
    pads = [int(pad) for pad in node.attrs.get("pads") or (0,) * (2 * rank)]
    dilations = node.attrs.get("dilations") or (1,) * rank
    return [(size - 1) * step + 1 - a - b for size, step, a, b in zip(kernel, dilations, pads[:rank], pads[rank:])]


def kernel_of(node: Node) -> Sequence[int] | None:
    """The sizes of a pool's or a convolution's window; None if unknown."""
    stated = node.attrs.get("kernel_shape")
    slot = FILTERS.get(str(node.op), 1)
    if stated or len(node.inputs) <= slot or node.inputs[slot] is None:
        return stated or None
    weights = node.inputs[slot].type  # type: ignore[union-attr]
    is_known = isinstance(weights, TensorType) and weights.is_static
    return weights.shape[2:] if is_known else None  # type: ignore[union-attr, index, return-value]
