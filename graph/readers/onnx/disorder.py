"""The error for a graph in which a node reads a value that no earlier node makes: a cycle, or nodes out of order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graph.errors import ReadError, did_you_mean
from graph.ways import arrows, way_between

if TYPE_CHECKING:
    from graph.readers.onnx.level import Level


def undefined_value(level: Level, node: Any, name: str) -> ReadError:
    """The error for a node that reads a value before any node has made it: unknown, unsorted, or a cycle."""
    where = level.reading.where(node)
    makers = {output: maker for maker in level.protos for output in maker.output if output}
    if name in level.arrays:
        return ReadError(f"the node reads {name!r}, which belongs to the bodies of calls", where=where)
    if name not in makers:
        hint = did_you_mean(name, level.values)
        return ReadError(f"the node reads {name!r}, which nothing defines", where=where, remedy=hint)
    maker = makers[name]
    title = f"{maker.name or name!r} ({maker.op_type})"
    way = _way_back(level, node, name)
    if way:
        through = f"through the value {name!r}, made by node {title}: {arrows([*way, way[0]])}"
        return ReadError(f"the node depends on itself {through}", where=where)
    return ReadError(
        f"the nodes are unsorted: {name!r} is made by a later node, {title}",
        where=where,
        remedy="ONNX wants each node after those that it reads from; sort the nodes",
    )


def _way_back(level: Level, node: Any, name: str) -> list[str]:
    """The values from one that the node makes to `name`, which it reads, if there is such a way."""
    edges = [
        (source, output) for maker in level.protos for source in maker.input for output in maker.output if source and output
    ]
    ways = (way_between([*edges, (output, output)], output, name) for output in node.output if output)
    return next(filter(None, ways), [])
