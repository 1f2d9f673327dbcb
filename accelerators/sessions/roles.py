"""What each input of a decoder is for: a session keeps caches, fills masks and positions, and asks the caller for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np

from partita.accelerators.errors import InputError
from partita.accelerators.sessions.caches import Cache, is_circular
from partita.accelerators.sessions.readers import Readers, readers_of
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import Dim, TensorType, numpy_dtype

Array = np.ndarray[Any, Any]

Count = Literal["batch", "rows", "past"]
"""Sequences side by side; the new tokens of each; the earlier ones."""

Role = Literal["mask", "positions", "past", "total", "held"]
"""Ones for every position, earlier and new; the positions of the new tokens; how many came before; how many there are then,
and how many of these a ring holds."""

ANGLES = frozenset({"Sin", "Cos", "RotaryEmbedding"})
"""The ops that positions end in where a model turns keys and queries by them."""

ON_THE_WAY = frozenset("Unsqueeze Squeeze Cast Mul MatMul Einsum Reshape Expand Transpose Concat Identity Flatten Outer".split())
"""The ops between."""


@attrs.frozen(slots=True, eq=False)
class Roles:
    """The inputs of a decoder by what they are for."""

    graph: Graph
    caches: tuple[Cache, ...]
    filled: Mapping[Node, Role]
    """The inputs that a session can fill."""
    asked: tuple[Node, ...]
    """The inputs that the caller gives."""
    symbols: Mapping[str, Count]
    """What each symbol counts. An exporter that knows no equal sizes gives one count several symbols."""
    fixed: Mapping[Count, int]
    """The counts that are numbers in the model itself."""

    def sizes(self, batch: int, rows: int, past: int) -> dict[str, int]:
        """The sizes that the symbols stand for."""
        counted: dict[Count, int] = {"batch": batch, "rows": rows, "past": past}
        sizes = {symbol: counted[count] for symbol, count in self.symbols.items()}
        for cache in self.caches:
            symbol = _shape(cache.past)[cache.axis]
            if cache.keeps is not None and isinstance(symbol, str):
                sizes[symbol] = cache.held(past)
        return sizes

    @property
    def windows(self) -> frozenset[int]:
        """The numbers of last positions that caches keep."""
        return frozenset(cache.keeps for cache in self.caches if cache.keeps is not None)

    def masked(self, past: int) -> int:
        """The number of earlier positions that a mask has elements for: those of the longest cache."""
        return max((cache.held(past) for cache in self.caches), default=past)

    def value(self, node: Node, batch: int, rows: int, past: int, seen: Array | None = None) -> Array:
        """What a session fills an input with. Where only some of the tokens are seen, positions count these."""
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
        """The position of each token among those of its sequence that are seen; a hidden one has some position."""
        if len(_shape(node)) == 1 and (seen != seen[:1]).any():
            cause = f"{node.name!r} has one position for all sequences, and a mask hides other tokens of each"
            raise InputError(cause, where=f"model {self.graph.name!r}", remedy="Begin a session for each sequence")
        positions = np.maximum(np.cumsum(seen, axis=1) - 1, 0)
        return positions if len(_shape(node)) == 2 else positions[0]


def roles_of(graph: Graph, caches: Sequence[Cache]) -> Roles:
    """What the inputs are for."""
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
    """The dimension that counts new tokens: the second of the first input that has no other symbol."""
    for node in others:
        shape = _shape(node)
        if len(shape) >= 2 and (isinstance(shape[1], int) or (isinstance(shape[1], str) and shape[1] not in known)):
            return shape[1]
    return None


def _role(
    readers: Readers, node: Node, symbols: Mapping[str, Count], rows: Dim, others: Sequence[Node]
) -> Role | None:
    """What a session fills this input with; None if the caller has to give it."""
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
    """Does a mask say which of the positions count that an encoder read? It is as long as the encoder's states, or as its
    keys and values, which are inputs too."""
    length = _shape(mask)[1]
    return "encoder" in mask.name or any(len(_shape(other)) > 2 and length in _shape(other) for other in others)


def _counted(readers: Readers, node: Node) -> Role | None:
    """A count that says where TensorScatter writes, or how much of a buffer Attention reads."""
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
