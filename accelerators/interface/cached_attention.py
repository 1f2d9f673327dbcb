"""Attention whose earlier keys and values are in preallocated buffers: a call that a device may have a kernel for.

Its body defines it in ONNX ops, so that every device can run it, by reading the buffers whole. A kernel reads only the
positions in use, and copies nothing."""

from __future__ import annotations

import numpy as np

from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType

OP = "CachedAttention"
"""The op of such a call."""

DOMAIN = "partita.cache"
"""Its domain."""

SCALE = "scale"
"""The attribute with the factor of queries times keys."""

WINDOW = "window"
"""The attribute with the number of positions, up to its own, that a row attends to; 0: all."""

_OPSETS = {"": 21}


def is_cached_attention(node: Node) -> bool:
    """True for a CachedAttention call, by its name."""
    return node.op == OP and node.domain == DOMAIN and node.subgraph is not None


def says_what_it_is(node: Node) -> bool:
    """True for a CachedAttention call whose body is the expected one. A file may give any function this name."""
    types = [entry.type for entry in node.reads]
    if not is_cached_attention(node) or len(types) != len(node.inputs) or len(types) != 6:
        return False
    if not all(isinstance(kind, TensorType) and kind.is_static for kind in types):
        return False
    query, keys, values, *new, length = [kind for kind in types if isinstance(kind, TensorType)]
    assert query.shape is not None and keys.shape is not None and node.subgraph is not None
    if [query.rank, keys.rank, length] != [4, 4, TensorType("int64", (1,))]:
        return False
    shape, room = (tuple(int(size or 0) for size in kind.shape or ()) for kind in (query, keys))
    batch, heads, rows, depth = shape
    if room[0] != batch or room[3] != depth or not room[1] or heads % room[1]:
        return False
    rows_of_group = TensorType("float32", (batch, room[1], rows, depth))
    is_typed = query.dtype == "float32" and keys == values == TensorType("float32", room) and new == [rows_of_group] * 2
    scale, window = float(node.attrs.get(SCALE, 1.0)), int(node.attrs.get(WINDOW, 0))
    return is_typed and _form(node.subgraph) == _form(_body(shape, room, scale, window))


def cached_attention(
    query: NodeEntry,
    buffers: tuple[NodeEntry, NodeEntry],
    new: tuple[NodeEntry, NodeEntry],
    length: NodeEntry,
    shape: tuple[int, ...],
    room: tuple[int, ...],
    scale: float,
    name: str,
    window: int = 0,
) -> Node:
    """The call. `shape` is the query's: sequences, heads, rows, depth; `room` the buffers': sequences, groups, positions, depth.

    Row i attends to the first `length` positions of the buffers (a vector of one element), then to the new ones up to its own;
    with a `window`, only to the last `window` of these. Consecutive heads of queries share a group of keys and values."""
    body = _body(shape, room, scale, window)
    inputs = (query, *buffers, *new, length)
    types = tuple(entry.type for entry in body.outputs)
    attributes = {SCALE: float(scale)} | ({WINDOW: window} if window else {})
    return Node(name, OP, inputs, attributes, (name,), types, DOMAIN, subgraph=body)


def _body(shape: tuple[int, ...], room: tuple[int, ...], scale: float, window: int) -> Graph:
    """The computation of the call, in ops that no pass simplifies."""
    batch, heads, rows, depth = shape
    _, groups, positions, _ = room
    query = variable("query", "float32", shape)
    keys, values = (variable(name, "float32", room) for name in ("keys", "values"))
    new_keys, new_values = (variable(name, "float32", (batch, groups, rows, depth)) for name in ("new_keys", "new_values"))
    length = variable("length", "int64", (1,))
    grouped = _reshaped(query, shape, (batch, groups, heads // groups * rows, depth))
    scaled = grouped if scale == 1.0 else op("Mul", grouped, constant(np.float32(scale)))
    nothing = constant(np.float32(-np.inf))
    counts = op("Less", constant(np.arange(positions)), length)
    seen = np.tri(rows, dtype=bool)
    if window:
        own = op("Add", length, constant(np.tile(np.arange(rows)[:, None], (heads // groups, 1))))
        counts = op("And", counts, op("Less", own, constant(np.arange(positions) + window)))
        seen &= ~np.tri(rows, k=-window, dtype=bool)
    before = op("Where", counts, _product(scaled, keys), nothing)
    now = _product(scaled, new_keys)
    if not seen.all():
        now = op("Where", constant(np.tile(seen, (heads // groups, 1))), now, nothing)
    chances = op("Softmax", op("Concat", before, now, axis=-1), axis=-1)
    parts = op("Split", chances, constant(np.array([positions, rows])), axis=-1, n_outputs=2)
    mixed = op("Add", op("MatMul", parts[0], values), op("MatMul", parts[1], new_values))
    result = _reshaped(mixed, (batch, groups, heads // groups * rows, depth), shape)
    inputs = [query, keys, values, new_keys, new_values, length]
    return Graph([result.evolve(output_types=(TensorType("float32", shape),))], inputs, OP, _OPSETS)


def _reshaped(x: Node, shape: tuple[int, ...], wanted: tuple[int, ...]) -> Node:
    return x if shape == wanted else op("Reshape", x, constant(np.array(wanted)))


def _form(graph: Graph) -> list[object]:
    """The graph's structure without names and types, for comparison."""
    number = {node: i for i, node in enumerate(graph.nodes)}

    def entry(read: NodeEntry | None) -> object:
        if read is None:
            return None
        value = read.node.value
        return (number[read.node], read.index) if value is None else (str(value.dtype), value.shape, value.tobytes())

    ops = [(n.op, n.domain, sorted(n.attrs.items()), [entry(e) for e in n.inputs], len(n.bodies)) for n in graph.nodes if n.is_op]
    return [len(graph.inputs), [number[node] for node in graph.inputs], ops, [entry(e) for e in graph.outputs]]


def _product(query: Node, keys: Node) -> Node:
    return op("MatMul", query, op("Transpose", keys, perm=[0, 1, 3, 2]))
