"""MergeCommon: merges nodes that compute the same from the same values."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any

import numpy as np

from partita.graph.graph import Graph
from partita.graph.node import Body, Node
from partita.graph.ops import is_random, spec_of
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.sparse import SparseTensor
from partita.passes.bodies import control_targets, everywhere
from partita.passes.registry import REQUESTS, register_pass

_SAMPLE = 64
"""Number of sampled elements in an array's hash; arrays with equal samples are compared in full."""


@register_pass("MergeCommon", keeps=("shape", "dtype", *REQUESTS))
def merge_common(g: Graph) -> Graph:
    """Merges nodes with the same op, attributes, inputs and affinity, and equal constants, into the first.

    Random ops, undeclared ops (they may keep state) and nodes with control dependencies are never merged.
    Calls are merged if they share one body object. Linear in nodes, and in the bytes of constants with equal samples."""
    return everywhere(g, _merge)


def _merge(g: Graph) -> Graph:
    pinned = control_targets(g)
    arrays: dict[Hashable, list[Node]] = {}
    seen: dict[Hashable, Node] = {}

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if rebuilt.value is not None:
            first = None if "onnx.input" in rebuilt.metadata else _equal_constant(rebuilt, arrays)
        elif rebuilt.is_variable or rebuilt.after or node in pinned or not _is_repeatable(rebuilt, g):
            first = None
        else:
            first = seen.setdefault(_key(rebuilt), rebuilt)
        if first is None or first is rebuilt:
            rewriter.keep(node, rebuilt)
            return
        for old, new in zip(node.outputs, first.outputs, strict=True):
            rewriter.replace(old, new)

    return rewrite(g, visit)


def _equal_constant(node: Node, arrays: dict[Hashable, list[Node]]) -> Node:
    """The first constant that is bitwise equal to this one, or this one."""
    array = node.value
    assert array is not None
    same_sample = arrays.setdefault((node.affinity, node.output_types, _sample(array)), [])
    for other in same_sample:
        assert other.value is not None
        if other.value is array or _same_bits(other.value, array):
            return other
    same_sample.append(node)
    return node


def _sample(array: np.ndarray[Any, Any]) -> Hashable:
    step = max(1, array.size // _SAMPLE)
    some = array.reshape(-1)[::step] if array.flags.c_contiguous else array.flat[::step]
    return _array_key(np.ascontiguousarray(some))


def _same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.dtype == object:
        return a.tolist() == b.tolist()
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return (
        np.array_equal(a.view(np.uint8).reshape(-1), b.view(np.uint8).reshape(-1))
        if a.ndim
        else a.tobytes() == b.tobytes()
    )


def _is_repeatable(node: Node, g: Graph) -> bool:
    """True if the node computes the same values each time it runs."""
    if node.subgraph is None and spec_of(node.op or "", node.domain, g.opsets.get(node.domain, 1)) is None:
        return False
    return not is_random(node) and all(
        _is_repeatable(n, body) for _, body in node.bodies for n in body.nodes if n.is_op
    )


def _key(node: Node) -> Hashable:
    return (
        node.op,
        node.domain,
        node.affinity,
        node.inputs,
        node.captures,
        id(node.subgraph),
        tuple(map(bool, node.output_names)),
        tuple(sorted((name, _canonical(value)) for name, value in node.attrs.items())) if node.attrs else (),
    )


def _canonical(value: Any) -> tuple[str, Hashable]:
    """An attribute as type and content: 1 differs from 1.0, and 0.0 from -0.0."""
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, np.ndarray):
        return ("array", _array_key(value))
    if isinstance(value, (Body, SparseTensor)):
        return ("object", id(value))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(map(_canonical, value)))
    return (type(value).__name__, value)


def _array_key(array: np.ndarray[Any, Any]) -> Hashable:
    content = tuple(array.reshape(-1).tolist()) if array.dtype == object else array.tobytes()
    return (str(array.dtype), array.shape, content)
