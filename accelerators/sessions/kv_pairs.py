"""The caches of a decoder: inputs that are returned as outputs, extended or updated."""

from __future__ import annotations

import attrs
import numpy as np

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType

TO_THE_END = 2**31 - 1
"""An end of a Slice that is past all positions."""

_ONE = np.array([1])


@attrs.frozen(slots=True, eq=False)
class Cache:
    """An input that holds the results of earlier calls, and the output that replaces it in the next call."""

    past: Node
    """The input."""
    output: int
    """The number of the output."""
    earlier: NodeEntry
    """The earlier positions as the joining op reads them: the input, or a slice that takes all of it."""
    joined: NodeEntry
    """The earlier positions followed by the new ones, which attention reads."""
    axis: int
    """The dimension in which it grows, or is written to."""
    new: NodeEntry
    """The positions that this call adds."""
    grows: bool
    """True if the output has more positions than the input. Else it has the same length, and is written to."""
    is_ring: bool = False
    """True if it is a ring buffer: once full, it is written from the front again and holds the last positions of any number."""
    keeps: int | None = None
    """The maximum number of last positions that the output holds; None: all of them."""

    def held(self, length: int) -> int:
        """The number of positions that it holds after `length` tokens."""
        return length if self.keeps is None else min(length, self.keeps)

    @property
    def room(self) -> int | None:
        """The capacity in positions of a cache that does not grow."""
        kind = self.past.output_types[0]
        size = kind.shape[self.axis] if isinstance(kind, TensorType) and kind.shape and not self.grows else None
        return size if isinstance(size, int) else None


def find_caches(graph: Graph) -> list[Cache]:
    """All caches of a graph, in the order of its inputs. Linear.

    A cache is joined with new positions by Concat, is the past of an Attention, or is written to by TensorScatter. The output may
    be only the last of the joined positions, as transformers keeps them for a sliding window."""
    caches: dict[Node, Cache] = {}
    for number, entry in enumerate(graph.outputs):
        cache = _cache(number, entry)
        if cache is not None:
            caches.setdefault(cache.past, cache)
    return [caches[node] for node in graph.inputs if node in caches]


def _cache(number: int, entry: NodeEntry) -> Cache | None:
    kept = _last(entry)
    joined = entry if kept is None else kept[0]
    node = joined.node
    if node.domain or node.op not in _JOINS:
        return None
    past_at, new_at, axis = _JOINS[str(node.op)](node, joined.index)
    past = node.inputs[past_at] if 0 <= past_at < len(node.inputs) else None
    new = node.inputs[new_at] if 0 <= new_at < len(node.inputs) else None
    read = None if past is None else _last(past)
    source = read[0] if kept is not None and read is not None and read[1:] == kept[1:] else past
    if past is None or source is None or new is None or not source.node.is_variable:
        return None
    grows = node.op != "TensorScatter"
    if kept is not None and (kept[1] != axis or not grows):
        return None
    return Cache(source.node, number, past, joined, axis, new, grows, is_circular(node), None if kept is None else kept[2])


def _last(entry: NodeEntry) -> tuple[NodeEntry, int, int] | None:
    """The value, axis and number of positions if a Slice takes the last positions; None for another op."""
    node = entry.node
    if node.op != "Slice" or node.domain or not 4 <= len(node.inputs) <= 5 or node.inputs[0] is None:
        return None
    values = [None if given is None else given.node.value for given in node.inputs[1:]]
    if any(value is None or value.size != 1 for value in values):
        return None
    start, end, axis, step = (int(value.item()) for value in (*values, _ONE)[:4] if value is not None)
    rank = getattr(node.inputs[0].type, "rank", None)
    if start >= 0 or end < TO_THE_END or step != 1 or (axis < 0 and not rank):
        return None
    return node.inputs[0], axis % rank if rank else axis, -start


def is_circular(node: Node) -> bool:
    """True if it writes to a ring buffer."""
    return node.op == "TensorScatter" and node.attrs.get("mode", "linear") == "circular"


def _of_concat(node: Node, _: int) -> tuple[int, int, int]:
    rank = getattr(node.inputs[0].type, "rank", None) if node.inputs and node.inputs[0] is not None else None
    axis = int(node.attrs.get("axis", 0))
    known = len(node.inputs) == 2 and (axis >= 0 or rank is not None)
    return (0, 1, axis if axis >= 0 else axis + (rank or 0)) if known else (-1, -1, 0)


def _of_attention(_: Node, index: int) -> tuple[int, int, int]:
    return {1: (4, 1, 2), 2: (5, 2, 2)}.get(index, (-1, -1, 0))


def _of_scatter(node: Node, _: int) -> tuple[int, int, int]:
    axis = int(node.attrs.get("axis", -2))
    rank = getattr(node.inputs[0].type, "rank", None) if node.inputs[0] is not None else None
    return (0, 1, axis % rank) if rank else (-1, -1, 0)


_JOINS = {"Concat": _of_concat, "Attention": _of_attention, "TensorScatter": _of_scatter}
"""For each op that joins a cache with new positions: the numbers of both inputs, and the axis; -1 if it does not join."""
