"""The roles of a decoder's inputs: a session keeps caches, fills in masks and positions, and gets the rest from the caller."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np

from partita.accelerators.decoder.kv_pairs import Cache, is_circular
from partita.accelerators.errors import InputError
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import Dim, TensorType, numpy_dtype

Readers = Mapping[NodeEntry, Sequence[tuple[Node, int]]]
"""For each value, the nodes that read it, and the number of the input."""


def readers_of(graph: Graph) -> Readers:
    """All readers of the graph's values. Linear."""
    readers: dict[NodeEntry, list[tuple[Node, int]]] = {}
    for node in graph.nodes:
        for slot, entry in enumerate((*node.inputs, *node.captures)):
            if entry is not None:
                readers.setdefault(entry, []).append((node, slot))
    return readers


class Unfit(PartitaError):
    """The decoder has a form that is not recognised; its session copies caches."""


class TooLong(Unfit):
    """The decoder's attention cannot be computed for this many positions: a table in it has fewer."""


Array = np.ndarray[Any, Any]

Count = Literal["batch", "rows", "past"]
"""Number of sequences; number of new tokens of each; number of earlier tokens."""

Role = Literal["mask", "positions", "past", "total", "held"]
"""Ones for all positions, earlier and new; the positions of the new tokens; the number of earlier tokens; the total number
afterwards; the number of these that a ring buffer holds."""

ANGLES = frozenset({"Sin", "Cos", "RotaryEmbedding"})
"""The ops that positions reach in models with rotary embeddings."""

ON_THE_WAY = ops("reshape", "repeating", "forwarding", "casting", "matmul") | {"Concat", "Transpose", "Mul", "Einsum"}
"""The ops in between."""


@attrs.frozen(slots=True, eq=False)
class Roles:
    """The inputs of a decoder by their roles."""

    graph: Graph
    caches: tuple[Cache, ...]
    filled: Mapping[Node, Role]
    """The inputs that a session can fill."""
    asked: tuple[Node, ...]
    """The inputs that the caller has to give."""
    symbols: Mapping[str, Count]
    """The count that each symbol stands for. Some exporters give one count several symbols."""
    fixed: Mapping[Count, int]
    """The counts that are static in the model."""

    def sizes(self, batch: int, rows: int, past: int) -> dict[str, int]:
        """The sizes of the symbols."""
        counted: dict[Count, int] = {"batch": batch, "rows": rows, "past": past}
        sizes = {symbol: counted[count] for symbol, count in self.symbols.items()}
        for cache in self.caches:
            symbol = _shape(cache.past)[cache.axis]
            if cache.keeps is not None and isinstance(symbol, str):
                sizes[symbol] = cache.held(past)
        return sizes

    def cache_shape(self, cache: Cache, batch: int, past: int) -> list[int]:
        """The sizes of a cache that holds this many positions; -1 for unknown ones."""
        sizes = self.sizes(batch, 1, past)
        return [dim if isinstance(dim, int) else sizes.get(str(dim), -1) for dim in _shape(cache.past)]

    def cache_bytes(self, batch: int, past: int) -> dict[str, int]:
        """The bytes of each cache with room for this many positions, by the name of its input. Unknown sizes count as 1."""
        return {
            cache.past.name: math.prod(map(abs, self.cache_shape(cache, batch, past))) * numpy_dtype(kind.dtype).itemsize
            for cache in self.caches if isinstance(kind := cache.past.output_types[0], TensorType)
        }

    @property
    def windows(self) -> frozenset[int]:
        """The window sizes of caches that keep only last positions."""
        return frozenset(cache.keeps for cache in self.caches if cache.keeps is not None)

    def masked(self, past: int) -> int:
        """The number of earlier positions in a mask: those of the longest cache."""
        return max((cache.held(past) for cache in self.caches), default=past)

    def value(self, node: Node, batch: int, rows: int, past: int, seen: Array | None = None) -> Array:
        """The value that a session fills in for an input. If only some tokens are `seen`, positions count only these."""
        kind = node.output_types[0]
        assert isinstance(kind, TensorType)
        dtype, shape = numpy_dtype(kind.dtype), kind.shape or ()
        role = self.filled[node]
        if role == "mask":
            wanted = self.masked(past) + rows
            return np.ones((batch, wanted), dtype) if seen is None else seen[:, -wanted:].astype(dtype)
        if role == "positions" and seen is not None:
            return self._counted(node, seen)[..., past:].astype(dtype)
        if role == "positions":
            positions = np.arange(past, past + rows).astype(dtype)
            return positions if len(shape) == 1 else np.ascontiguousarray(np.broadcast_to(positions, (batch, rows)))
        number = past if role == "past" else past + rows
        if role == "held":
            number = min(number, *(cache.room for cache in self.caches if cache.is_ring and cache.room is not None))
        dims = [dim if isinstance(dim, int) else batch for dim in shape]
        return np.full(dims, number, dtype)

    def _counted(self, node: Node, seen: Array) -> Array:
        """The position of each token among those seen of its sequence; that of a hidden one is arbitrary."""
        if len(_shape(node)) == 1 and (seen != seen[:1]).any():
            cause = f"{node.name!r} has one position for all sequences, and a mask hides other tokens of each"
            raise InputError(cause, where=f"model {self.graph.name!r}", remedy="Begin a session for each sequence")
        positions = np.maximum(np.cumsum(seen, axis=1) - 1, 0)
        return positions if len(_shape(node)) == 2 else positions[0]


def roles_of(graph: Graph, caches: Sequence[Cache]) -> Roles:
    """The roles of the inputs."""
    others = [node for node in graph.inputs if node not in {cache.past for cache in caches}]
    counted: dict[Dim, Count] = {}
    for cache in caches:
        dims = _shape(cache.past)
        counted |= dict.fromkeys(dims[:1], "batch")
        if cache.grows:
            counted |= dict.fromkeys(dims[cache.axis : cache.axis + 1], "past")
    rows = _rows(others, counted)
    counted[rows] = "rows"
    symbols = {dim: count for dim, count in counted.items() if isinstance(dim, str)}
    filled: dict[Node, Role] = {}
    readers = readers_of(graph)
    for node in others:
        role = _role(readers, node, symbols, rows, others)
        if role is not None:
            filled[node] = role
    masks = [_shape(node)[0] for node, role in filled.items() if role == "mask"]
    symbols |= {dim: "batch" for dim in masks if isinstance(dim, str) and dim not in symbols}
    fixed = {count: dim for dim, count in counted.items() if isinstance(dim, int)}
    return Roles(graph, tuple(caches), filled, tuple(node for node in others if node not in filled), symbols, fixed)


def _shape(node: Node) -> tuple[Dim, ...]:
    kind = node.output_types[0]
    return kind.shape or () if isinstance(kind, TensorType) else ()


def _rows(others: Sequence[Node], known: Mapping[Dim, Count]) -> Dim:
    """The dimension that counts new tokens: the second of the first input where it has no other role."""
    for node in others:
        shape = _shape(node)
        if len(shape) >= 2 and (isinstance(shape[1], int) or (isinstance(shape[1], str) and shape[1] not in known)):
            return shape[1]
    return None


def _role(readers: Readers, node: Node, symbols: Mapping[str, Count], rows: Dim, others: Sequence[Node]) -> Role | None:
    """The role of this input; None if the caller has to give it."""
    kind, shape = node.output_types[0], _shape(node)
    if not isinstance(kind, TensorType):
        return None
    if len(shape) == 2 and isinstance(shape[1], str) and shape[1] not in symbols:
        return None if _is_of_encoder(node, others) else "mask"
    if kind.dtype not in ("int64", "int32"):
        return None
    count = _counted(readers, node)
    if count is not None:
        return count
    is_alone = len([other for other in others if _shape(other) == shape]) == 1
    as_rows = bool(shape) and shape[-1] == rows and len(shape) <= 2
    if as_rows and ("position" in node.name or (not is_alone and _reaches_angles(readers, node))):
        return "positions"
    if not shape or shape == (1,):
        return "past" if "past" in node.name else "total" if "total" in node.name else None
    return None


def _is_of_encoder(mask: Node, others: Sequence[Node]) -> bool:
    """True if a mask is for an encoder's positions: it has the length of the encoder's states, or of its keys and values, which
    are inputs too."""
    length = _shape(mask)[1]
    return "encoder" in mask.name or any(len(_shape(other)) > 2 and length in _shape(other) for other in others)


def _counted(readers: Readers, node: Node) -> Role | None:
    """The role of a count that is the write position of TensorScatter, or the number of positions that Attention reads."""
    for reader, slot in readers.get(node[0], ()):
        if reader.op == "TensorScatter" and slot == 2:
            return "past"
        if reader.op == "Attention" and slot == 6:
            key = reader.inputs[1]
            return "held" if key is not None and is_circular(key.node) else "total"
    return None


def _reaches_angles(readers: Readers, node: Node) -> bool:
    waiting, seen = [node[0]], {node}
    while waiting:
        for reader, _ in readers.get(waiting.pop(), ()):
            if reader.op in ANGLES:
                return True
            if reader.op in ON_THE_WAY and reader not in seen:
                seen.add(reader)
                waiting.append(reader[0])
    return False
