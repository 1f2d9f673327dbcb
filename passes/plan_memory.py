"""PlanMemory: assigns the same memory to values that are never alive at the same time."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping

import attrs

from partita.graph.errors import PassError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import ELEMENT_TYPES, TensorType, Type
from partita.passes.registry import register_pass


@attrs.frozen(slots=True)
class MemoryPlan:
    """Offsets of all computed values in one block of memory."""

    peak: int
    """The size of the block."""
    naive: int
    """The size of the block if every value had separate memory."""
    at_once: int
    """Maximum bytes alive at the same time: a lower bound of any plan's peak."""
    offsets: Mapping[str, int] = attrs.field(repr=False)
    """The offset of each value by name."""
    sizes: Mapping[str, int] = attrs.field(repr=False)
    """The bytes of each value, rounded up to the alignment."""
    workspaces: Mapping[str, tuple[int, int]] = attrs.field(repr=False)
    """Offset and size of the memory for the bodies of a node while it runs, by node name."""
    unknown: tuple[str, ...]
    """The values of unknown size, which are not planned."""
    alive: Mapping[str, int] = attrs.field(factory=dict, repr=False)
    """Bytes alive while each node runs, its bodies' memory included, by node name in the order of execution."""

    def __str__(self) -> str:
        share = f" ({self.peak / self.naive:.0%})" if self.naive else ""
        rest = f", {len(self.unknown)} values of unknown size" if self.unknown else ""
        return f"peak {self.peak:,} bytes of {self.naive:,}{share}, {len(self.offsets)} values{rest}"


@register_pass("PlanMemory", needs=("shape",), provides=("memory_plan",))
def plan_memory(g: Graph, *, alignment: int = 64) -> Graph:
    """Attaches a `MemoryPlan` as g.attrs["memory_plan"].

    Values live from the node that computes them to the last that reads them; outputs live to the end. Graph inputs and
    constants are owned by others and not planned."""
    if alignment < 1:
        raise PassError(f"the alignment is a positive number of bytes, not {alignment}")
    return g.evolve(attrs={**g.attrs, "memory_plan": plan(g, alignment)})


def plan(g: Graph, alignment: int, known: dict[int, MemoryPlan] | None = None) -> MemoryPlan:
    """Best fit in the order of execution, O(n log n); a shared body is planned once."""
    known = {} if known is None else known
    last = _last_uses(g)
    arena = Arena()
    offsets: dict[str, int] = {}
    sizes: dict[str, int] = {}
    workspaces: dict[str, tuple[int, int]] = {}
    unknown: list[str] = []
    alive: dict[str, int] = {}
    ending: dict[int, list[tuple[int, int]]] = {}
    for i, node in enumerate(g.nodes):
        if not node.is_op:
            continue
        for entry in node.outputs:
            size = aligned_bytes(entry.type, alignment)
            if not entry.name:
                continue
            if size is None:
                unknown.append(entry.name)
                continue
            offset = offsets[entry.name] = arena.take(size)
            sizes[entry.name] = size
            ending.setdefault(last.get(entry, i), []).append((offset, size))
        inner = _workspace(node, alignment, known)
        alive[node.name] = arena.taken + inner
        if inner:
            offset = arena.take(inner)
            workspaces[node.name] = (offset, inner)
            arena.give(offset, inner)
        for offset, size in ending.pop(i, ()):
            arena.give(offset, size)
    naive = sum(sizes.values()) + sum(size for _, size in workspaces.values())
    return MemoryPlan(arena.size, naive, arena.most_taken, offsets, sizes, workspaces, tuple(unknown), alive)


def _last_uses(g: Graph) -> dict[NodeEntry, int]:
    """The index of the last node that reads each value; for an output, the number of nodes."""
    last = {entry: i for i, node in enumerate(g.nodes) for entry in node.reads}
    last.update(dict.fromkeys(g.outputs, len(g.nodes)))
    return last


def _workspace(node: Node, alignment: int, known: dict[int, MemoryPlan]) -> int:
    """The memory for the bodies of the node while it runs; only one of several bodies runs at a time."""
    most = 0
    for _, body in node.bodies:
        if id(body) not in known:
            known[id(body)] = plan(body, alignment, known)
        most = max(most, known[id(body)].peak)
    return most


def aligned_bytes(known: Type | None, alignment: int) -> int | None:
    """The bytes of a value, rounded up to the alignment; None if its size is not known."""
    if not isinstance(known, TensorType) or not known.is_static or known.dtype == "string":
        return None
    count = math.prod(known.shape or ())  # type: ignore[arg-type]
    return -(-count * ELEMENT_TYPES[known.dtype].bits // (8 * alignment)) * alignment


class Arena:
    """Free blocks by size and by offset; adjacent ones are merged."""

    def __init__(self) -> None:
        self.size = 0
        self.taken = 0
        self.most_taken = 0
        self._by_size: list[tuple[int, int]] = []
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def take(self, size: int) -> int:
        """The offset of a block of that size: the smallest free one that is large enough, or the end."""
        if not size:
            return 0
        self.taken += size
        self.most_taken = max(self.most_taken, self.taken)
        i = bisect_left(self._by_size, (size, 0))
        if i < len(self._by_size):
            free, offset = self._by_size[i]
        elif self.size in self._ends:
            offset = self._ends[self.size]
            free = self.size - offset
        else:
            offset, free = self.size, 0
        if free:
            self._forget(offset, free)
        if free > size:
            self._remember(offset + size, free - size)
        self.size = max(self.size, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        """Frees a block."""
        if not size:
            return
        self.taken -= size
        before = self._ends.get(offset)
        if before is not None:
            self._forget(before, offset - before)
            offset, size = before, size + offset - before
        behind = self._starts.get(offset + size)
        if behind is not None:
            self._forget(offset + size, behind)
            size += behind
        self._remember(offset, size)

    def _remember(self, offset: int, size: int) -> None:
        insort(self._by_size, (size, offset))
        self._starts[offset] = size
        self._ends[offset + size] = offset

    def _forget(self, offset: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, offset))]
        del self._starts[offset], self._ends[offset + size]
