"""Finds the contradictions among the errors of ONNX's strict inference, which also reports unknown
types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from partita.graph.errors import TypeMismatch

REMEDY = "Correct the declared types or the given shapes, or pass strict=False to leave unknown what does not follow"

DECLARED = "Correct the declared type, or leave it out: it follows by itself. InferShape with strict=False puts in what follows"


def contradiction(complaints: str, graph: Any) -> TypeMismatch | None:
    """The first error that contradicts known types, or None.

    `graph` is the GraphProto as far as it could be inferred. A node that reads a value of unknown type contradicts nothing."""
    silent = set(_untold(graph, set()))
    for line in complaints.splitlines():
        if (
            line.strip()
            and "(op_type:Constant)" not in line
            and not _UNCOUNTED.search(line)
            and not silent.intersection(_NODE.findall(line)[-1:])
        ):
            return _mismatch(line)
    return None


class DeclaredMismatch(TypeMismatch):
    """A declared type differs from the inferred one."""


def refuted(complaints: str) -> frozenset[str] | None:
    """The names of the nodes for which ONNX reports that a declared type differs from the inferred one; None if its text
    names no such node.
    """
    lines = [line for line in complaints.splitlines() if _CLAIM.search(line)]
    return frozenset(name for line in lines for name in _NODE.findall(line)) if lines else None


_CLAIM = re.compile(r"differs? (in .* )?from existing|and existing shape differ|existing=|existing output type")
"""ONNX's messages for a declared type that differs from the inferred one."""

_UNCOUNTED = re.compile(r"Number of elements of input '(sizes|scales)' \(0\)|Integer overflow in .* during data propagation")
"""ONNX's messages for a Resize whose sizes are a vector of unknown length, which it takes for zero, and for an integer
overflow, which is to wrap around."""

# A Constant without a name is in a function body of ONNX's own: that of MeanVarianceNormalization has an error.
_NODE = re.compile(r"\(op_type:[^,()]*, node name: (.*?)\): ")


def _untold(graph: Any, outer: set[str]) -> Iterator[str]:
    """The names of the nodes that read values of unknown type, including those in bodies."""
    known = outer | {item.name for item in graph.initializer}
    known.update(
        item.name
        for part in (graph.input, graph.output, graph.value_info)
        for item in part
        if _is_told(item.type)
    )
    for node in graph.node:
        if any(name and name not in known for name in node.input):
            yield node.name
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _untold(attribute.g, known)


def _is_told(proto: Any) -> bool:
    kind = proto.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or proto.tensor_type.elem_type != 0)


def _mismatch(text: str) -> TypeMismatch:
    """ONNX's message as an error whose `where` is the first node in the message."""
    match = re.search(r"\(op_type:\s*([^,)]*)(?:, node name: (.*?))?\): *(.*)", text)
    if match is None:
        return TypeMismatch(f"types contradict each other: {text.strip()}", remedy=REMEDY)
    op, name, cause = match.groups()
    cause = re.sub(r"^(\[\w+\] *)+", "", cause.strip())
    return TypeMismatch(
        f"types contradict each other: {cause}", where=f"node {name or ''!r} ({op})", remedy=REMEDY
    )
