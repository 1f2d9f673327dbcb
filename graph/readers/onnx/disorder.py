"""What is wrong with a graph in which a node reads a value that is not there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graph.errors import ReadError, did_you_mean

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
    if _leads_back(makers, name, set(node.output)):
        return ReadError(f"the node depends on itself through the value {name!r}, made by node {title}", where=where)
    return ReadError(
        f"the nodes are unsorted: {name!r} is made by a later node, {title}",
        where=where,
        remedy="ONNX wants each node after those that it reads from; sort the nodes",
    )


def _leads_back(makers: dict[str, Any], start: str, goals: set[str]) -> bool:
    """Does the value `start` depend on one of the goals?"""
    seen = {start}
    stack = [start]
    while stack:
        name = stack.pop()
        if name in goals:
            return True
        for source in makers[name].input if name in makers else ():
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return False
