"""Slices along dynamic dimensions that step backward, or whose ends depend on sizes, are made of gathers.

A slice that steps forward from a constant start needs no gather: the sizes in its type determine it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.graph.build import constant
from partita.graph.node import Node
from partita.passes.infer.moves import END

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

LEAST_OPSET = 15
"""The opset since which a Shape may return some of the sizes."""

STARTS, ENDS = 1, 2
"""The inputs with the starts and the ends of a slice."""


@attrs.frozen(slots=True)
class _Span:
    """The range of a slice along one dimension."""

    slot: int
    """Index of the span in the starts and ends of the slice."""
    axis: int
    start: Size
    end: Size
    step: int


def is_gathered(node: Node, reading: Reading, version: int) -> bool:
    """True if it steps backward along a dynamic dimension, or its type does not determine its span."""
    if node.op != "Slice" or node.domain or version < LEAST_OPSET or not _goes_as_constants_say(node):
        return False
    sizes = reading.sizes(node.inputs[0])
    return any(
        isinstance(sizes[span.axis], Extent) if span.step < 0 else not _is_said_by_type(span, sizes[span.axis])
        for span in _spans(node, reading)
    )


def goes_forward(node: Node) -> bool:
    """True if every step of the slice is constant and positive. Then a slice that keeps all sizes changes nothing."""
    steps = node.inputs[4] if len(node.inputs) > 4 else None
    return steps is None or (steps.node.value is not None and bool((steps.node.value > 0).all()))


def with_ends_said(node: Node, reading: Reading) -> Node:
    """The slice with constants in place of ends that depend on sizes, if its type determines the spans."""
    ends = node.inputs[ENDS] if len(node.inputs) > ENDS else None
    if ends is None or ends.node.value is not None or not goes_forward(node) or not _goes_as_constants_say(node):
        return node
    spans, sizes = _spans(node, reading), reading.sizes(node.inputs[0])
    if not all(_is_said_by_type(span, sizes[span.axis]) for span in spans):
        return node
    last = [span.end if isinstance(span.end, int) else END for span in spans]
    said = constant(np.array(last, reading.type_of(ends).dtype))
    return node.evolve(inputs=(*node.inputs[:ENDS], said[0], *node.inputs[ENDS + 1 :]))


def gathered_spans(node: Node, reading: Reading) -> list[tuple[int, int, int]]:
    """For each sliced dimension: its index in the starts and ends, its axis and its step."""
    return [(span.slot, span.axis, span.step) for span in _spans(node, reading)]


def _is_said_by_type(span: _Span, size: Size) -> bool:
    """True if its constant start and the size of the result determine the span for a kernel."""
    return isinstance(span.start, int) and (isinstance(span.end, int) or isinstance(size, Extent))


def _goes_as_constants_say(node: Node) -> bool:
    """True if the axes and steps of a slice are constant."""
    return len(node.inputs) > ENDS and all(entry is None or entry.node.value is not None for entry in node.inputs[ENDS + 1 :])


def _spans(node: Node, reading: Reading) -> list[_Span]:
    """The span of the slice along each of its axes."""
    rank = len(reading.sizes(node.inputs[0]))
    given = [None if entry is None else reading.vector(entry) for entry in node.inputs[1:]]
    starts, ends, axes, steps = [*given, None, None][:4]
    assert starts is not None and ends is not None
    numbers = zip(starts, ends, axes or range(len(starts)), steps or [1] * len(starts), strict=True)
    return [_Span(i, int(axis) % rank, start, end, int(step)) for i, (start, end, axis, step) in enumerate(numbers)]
