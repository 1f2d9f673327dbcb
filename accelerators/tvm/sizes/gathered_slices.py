"""Slices along dimensions of any size that step backward, or that begin or end where sizes say: they are made of gathers.

A slice that goes forward and begins where a constant says needs no gather: its type says how much it takes."""

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
"""Since this version of ONNX a Shape says some of the sizes."""

STARTS, ENDS = 1, 2
"""The inputs that say where a slice begins and ends."""


@attrs.frozen(slots=True)
class _Span:
    """What a slice takes along one dimension."""

    slot: int
    """Where it stands among the numbers that the slice is given."""
    axis: int
    start: Size
    end: Size
    step: int


def is_gathered(node: Node, reading: Reading, version: int) -> bool:
    """Does it step backward along a dimension that is not known, or take what its type does not say?"""
    if node.op != "Slice" or node.domain or version < LEAST_OPSET or not _goes_as_constants_say(node):
        return False
    sizes = reading.sizes(node.inputs[0])
    return any(
        isinstance(sizes[span.axis], Extent) if span.step < 0 else not _is_said_by_type(span, sizes[span.axis])
        for span in _spans(node, reading)
    )


def goes_forward(node: Node) -> bool:
    """Is every step of the slice known, and forward? Then one that keeps all sizes changes nothing."""
    steps = node.inputs[4] if len(node.inputs) > 4 else None
    return steps is None or (steps.node.value is not None and bool((steps.node.value > 0).all()))


def with_ends_said(node: Node, reading: Reading) -> Node:
    """The slice without its ends, where sizes say these and its type says how much it takes."""
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
    """For each dimension that the slice names: its place among the starts and ends, its axis and its step."""
    return [(span.slot, span.axis, span.step) for span in _spans(node, reading)]


def _is_said_by_type(span: _Span, size: Size) -> bool:
    """Does a kernel find what the span takes, given its first position and how many there are?"""
    return isinstance(span.start, int) and (isinstance(span.end, int) or isinstance(size, Extent))


def _goes_as_constants_say(node: Node) -> bool:
    """Are the dimensions and steps of a slice constants?"""
    return len(node.inputs) > ENDS and all(entry is None or entry.node.value is not None for entry in node.inputs[ENDS + 1 :])


def _spans(node: Node, reading: Reading) -> list[_Span]:
    """What the slice takes along each dimension that it names."""
    rank = len(reading.sizes(node.inputs[0]))
    given = [None if entry is None else reading.vector(entry) for entry in node.inputs[1:]]
    starts, ends, axes, steps = [*given, None, None][:4]
    assert starts is not None and ends is not None
    numbers = zip(starts, ends, axes or range(len(starts)), steps or [1] * len(starts), strict=True)
    return [_Span(i, int(axis) % rank, start, end, int(step)) for i, (start, end, axis, step) in enumerate(numbers)]
