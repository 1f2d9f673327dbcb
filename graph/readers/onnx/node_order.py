"""The order of nodes: unsorted nodes are sorted, and a graph that Partita wrote gets its order back. A value without a
producer and a cycle are errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from partita.graph.errors import ReadError, did_you_mean
from partita.graph.node import Node
from partita.graph.order import lowest_first
from partita.graph.protos.captures import free_of_node
from partita.graph.shortest_path import arrows, way_between

if TYPE_CHECKING:
    from partita.graph.readers.onnx.level import Level

REMEDY = "ONNX requires each node after those that it reads from; without strict=True the nodes are sorted"


class Unsorted(ReadError):
    """The error for a node that reads a value of a later node."""


def sorted_nodes(protos: Any) -> Sequence[Any]:
    """The NodeProtos in topological order, in file order as far as possible; cycles come last. O(n log n)."""
    makers: dict[str, int] = {}
    for i, proto in enumerate(protos):
        for name in proto.output:
            makers.setdefault(name, i)
    consumers: list[list[int]] = [[] for _ in protos]
    waiting = [0] * len(protos)
    for i, proto in enumerate(protos):
        for source in {makers[name] for name in _read_by(proto) if name and name in makers}:
            consumers[source].append(i)
            waiting[i] += 1
    order = lowest_first([i for i, count in enumerate(waiting) if not count], waiting, consumers)
    order += sorted(set(range(len(waiting))).difference(order))
    return [protos[i] for i in order]


def undefined_value(level: Level, node: Any, name: str) -> ReadError:
    """The error for a node that reads a value before it is computed: unknown, unsorted, or a cycle."""
    where = level.reading.where(node)
    if name in level.arrays:
        return ReadError(f"the node reads {name!r}, which belongs to the bodies of calls", where=where)
    maker = next((maker for protos in _around(level) for maker in protos if name in maker.output), None)
    if maker is None:
        hint = did_you_mean(name, level.values)
        return ReadError(f"the node reads {name!r}, which nothing defines", where=where, remedy=hint)
    title = f"{maker.name or name!r} ({maker.op_type})"
    way = _way_back(level, node, name)
    if way:
        through = f"through the value {name!r}, made by node {title}: {arrows([*way, way[0]])}"
        return ReadError(f"the node depends on itself {through}", where=where)
    return Unsorted(f"the nodes are unsorted: {name!r} is made by a later node, {title}", where=where, remedy=REMEDY)


def _read_by(proto: Any) -> Iterator[str]:
    """The names of the values that the node and its bodies read."""
    yield from proto.input
    yield from free_of_node(proto)


def _around(level: Level) -> Iterator[Any]:
    """The nodes of the level and of all enclosing levels."""
    here: Level | None = level
    while here is not None:
        yield here.protos
        here = here.outer


def _way_back(level: Level, node: Any, name: str) -> list[str]:
    """The values on a path from an output of the node to `name`, which it reads; empty if there is none."""
    edges = [
        (source, output)
        for maker in level.protos
        for source in _read_by(maker)
        for output in maker.output
        if source and output
    ]
    ways = (way_between([*edges, (output, output)], output, name) for output in node.output if output)
    return next(filter(None, ways), [])


def restore_order(nodes: Sequence[Node], order: Sequence[int]) -> None:
    """Moves the first nodes to the positions `order`; the others fill the remaining positions in order.

    Places may be changed since the nodes are not shared yet. An order that does not fit is ignored: another program
    changed the file, and nothing depends on it."""
    positions = set(order)
    if len(positions) < len(order) or len(order) > len(nodes) or not all(0 <= p < len(nodes) for p in order):
        return
    places = sorted(node.place for node in nodes)
    left = [place for position, place in enumerate(places) if position not in positions]
    for node, place in zip(nodes, [*(places[p] for p in order), *left], strict=True):
        object.__setattr__(node, "place", place)
