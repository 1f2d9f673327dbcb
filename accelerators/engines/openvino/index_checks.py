"""Checks the indices and the sequence lengths among openvino's inputs before it runs, and that the sizes of its
inputs are consistent.

For an invalid index openvino returns zeros, or reads and writes out of bounds; it clips a length that is too
long. Indices and lengths that are computed within a subgraph cannot be checked here: openvino does not get the ops
that read them, except Gather, for which it returns zeros. Of a size, an axis or an index that exceeds 32 bits it keeps
the lower 32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.engines.openvino.small_integers import WIDE, is_index
from partita.accelerators.errors import RunError
from partita.graph.errors import TypeMismatch
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.symbols import Sizes
from partita.graph.types import TensorType
from partita.passes.infer.contract import is_unchecked, require_fit
from partita.passes.infer.reading import symbolic

_UNSEEN = "openvino reads or writes outside where {op}'s indices are wrong, and {what} are computed"


def unseen(node: Node) -> str | None:
    """The reason why openvino should not get the op: its indices are computed, or a constant one is out of range."""
    entry = _counting(node)
    if entry is None or node.inputs[0] is None:
        return None
    data, read = node.inputs[0].type, entry.node
    if read.value is not None:
        shape = data.shape if isinstance(data, TensorType) else None
        wrong = _wrong(node, shape, read.value)
        if wrong or node.op == "Gather" or node.op in ops("recurrent") or node.inputs[0].node.is_variable:
            return wrong
        return None if _sizes(node, shape, read.value.shape) else _UNSEEN.format(op=node.op, what="the sizes of its data")
    if node.op == "Gather" or read.is_variable:
        return None
    if node.op in ops("recurrent"):
        return f"openvino takes a length of {node.op} that is too long for the longest one, and these are computed"
    return _UNSEEN.format(op=node.op, what="these")


def _counting(node: Node) -> NodeEntry | None:
    """The input with the node's indices or lengths, if it has one."""
    slot = 1 if node.op in ops("indexed") else 4 if node.op in ops("recurrent") else None
    return None if slot is None or node.domain or len(node.inputs) <= slot else node.inputs[slot]


def _wrong(node: Node, shape: Sequence[Any] | None, values: np.ndarray[Any, Any]) -> str | None:
    """The first index or length that does not fit data of this shape, in words."""
    if node.op not in ops("recurrent"):
        sizes = _sizes(node, shape, values.shape)
        return None if sizes is None else _outside(values, sizes)
    steps = shape[1 if node.attrs.get("layout", 0) else 0] if shape and len(shape) == 3 else None
    long = values[(values < 0) | (values > steps)] if isinstance(steps, int) else values[:0]
    return f"the length {long[0]} of a sequence is not between 0 and {steps}" if long.size else None


@attrs.frozen(slots=True)
class _Given:
    """One input with indices or lengths."""

    node: Node
    slot: int | None
    """The number of the graph's input; None for a constant."""
    data: NodeEntry
    """The value that is read or written at the indices."""


class GivenIndices:
    """The inputs of a graph that are indices or sequence lengths of its ops."""

    def __init__(self, graph: Graph) -> None:
        self._slots: Mapping[NodeEntry, int] = {node[0]: i for i, node in enumerate(graph.inputs)}
        counting = [(node, _counting(node)) for node in graph.nodes if node.is_op]
        self._given = [
            _Given(node, self._slots.get(entry), node.inputs[0])
            for node, entry in counting
            if entry is not None and node.inputs[0] is not None
            if entry in self._slots or (entry.node.value is not None and node.inputs[0] in self._slots)
        ]
        self._unchecked = [node for node in graph.nodes if is_unchecked(node) and any(e in self._slots for e in node.reads)]
        self._opsets = graph.opsets
        self._wide = {self._slots[entry]: node for node in graph.nodes for entry in _wide(node) if entry in self._slots}
        others = {entry for node in graph.nodes if node.op != "Slice" for entry in node.reads} | set(graph.outputs)
        self._bounds = [slot for slot, node in self._wide.items() if node.op == "Slice" and graph.inputs[slot][0] not in others]

    def checked(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs, with bounds of slices clipped to 32 bits. RunError if an index or a length does not fit."""
        far = {slot for slot in self._bounds if _longer_than_32_bits(np.asarray(inputs[slot])) is not None}
        if far:
            inputs = [np.clip(value, -(2**31), 2**31 - 1) if i in far else value for i, value in enumerate(inputs)]
        for given in self._given:
            values = _constant(given.node) if given.slot is None else np.asarray(inputs[given.slot])
            wrong = _wrong(given.node, self._shape(given.data, inputs), values)
            if wrong is not None:
                raise RunError(wrong, where=f"device 'openvino', {given.node.name!r} ({given.node.op})")
        for node in self._unchecked:
            try:
                require_fit(node, [self._sizes(entry, inputs) for entry in node.inputs], self._opsets)
            except TypeMismatch as error:
                raise RunError(error.cause, where=f"device 'openvino', {node.name!r} ({node.op})") from error
        for slot, node in self._wide.items():
            long = _longer_than_32_bits(np.asarray(inputs[slot]))
            if long is not None:
                cause = f"{long} is not a size, axis or index that openvino computes with: it has 32 bits for it"
                raise RunError(cause, where=f"device 'openvino', {node.name!r} ({node.op})")
        return inputs

    def _sizes(self, entry: NodeEntry | None, inputs: Sequence[Any]) -> Sizes | None:
        """The value's shape in this call, with symbols for sizes that are not known before it runs."""
        if entry is None:
            return None
        return np.shape(inputs[self._slots[entry]]) if entry in self._slots else symbolic(entry)

    def _shape(self, data: NodeEntry, inputs: Sequence[Any]) -> Sequence[Any] | None:
        if data in self._slots:
            return np.shape(inputs[self._slots[data]])
        return data.type.shape if isinstance(data.type, TensorType) else None


def _constant(node: Node) -> np.ndarray[Any, Any]:
    """The constant indices or lengths."""
    entry = _counting(node)
    assert entry is not None and entry.node.value is not None
    return entry.node.value


def _wide(node: Node) -> Iterator[NodeEntry]:
    """The node's inputs that are sizes, axes or indices wider than 32 bits."""
    for slot, entry in enumerate(node.inputs):
        if entry is not None and is_index(node, slot) and not node.domain:
            if isinstance(entry.type, TensorType) and entry.type.dtype in WIDE:
                yield entry


def _longer_than_32_bits(values: np.ndarray[Any, Any]) -> int | None:
    """The first value that exceeds 32 bits, if there is one."""
    if not values.size:
        return None
    return next((int(n) for n in (values.min(), values.max()) if not -(2**31) <= n < 2**31), None)


def _sizes(node: Node, shape: Sequence[Any] | None, given: Sequence[int]) -> tuple[int, ...] | None:
    """The sizes that bound the indices; None if dynamic."""
    if not shape:
        return None
    if str(node.op).endswith("ND"):
        first = int(node.attrs.get("batch_dims", 0))
        wanted = tuple(shape[first : first + given[-1]]) if given else (None,)
    else:
        wanted = (shape[int(node.attrs.get("axis", 0)) % len(shape)],)
    return wanted if all(isinstance(size, int) for size in wanted) else None


def _outside(indices: np.ndarray[Any, Any], sizes: tuple[int, ...]) -> str | None:
    """The first index out of range, in words."""
    if not indices.size or not sizes:
        return None
    for column, size in zip(indices.reshape(-1, len(sizes)).T, sizes, strict=True):
        wrong = next((int(n) for n in (column.min(), column.max()) if not -size <= n < size), None)
        if wrong is not None:
            return f"index {wrong} is outside of a dimension of {size}"
    return None
