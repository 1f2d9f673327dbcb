"""Resizes and slices of dynamic sizes that are made of gathers.

Resizes that are not gathers have a kernel. A slice is made of gathers along dynamic dimensions if it steps backward, or if its
ends depend on sizes. One that steps forward from a constant start needs no gather: the sizes in its type determine it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.graph.build import constant
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.resize import COORDINATES_SINCE, older_positions
from partita.graph.ops.traits import ops
from partita.graph.types import HALVES, TensorType
from partita.passes.infer.moves import END

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

BY_FACTORS = frozenset(("asymmetric", "half_pixel", "pytorch_half_pixel"))
"""Coordinate modes in which the factor alone determines the positions."""

REPEATS = frozenset((("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")))
"""Coordinate and rounding modes in which a nearest resize by integer factors repeats each pixel."""

IMAGES = 4
"""Rank of images."""

MIXED = HALVES | {"float32"}
"""The element types that are interpolated by gathers; nearest resizes take any type."""


def can_gather(node: Node, version: int) -> bool:
    """True for a resize of all dimensions whose results are sums of few positions."""
    attributes, scales, sizes = node.attrs, said_input(node, 2), said_input(node, 3)
    if node.op != "Resize" or node.domain or version < COORDINATES_SINCE or (scales is None) == (sizes is None):
        return False
    is_plain = attributes.get("keep_aspect_ratio_policy", "stretch") == "stretch" and not attributes.get("antialias", 0)
    is_cropped = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    is_known = scales is None or scales.node.value is not None
    kind = node.output_types[0]
    is_taken = isinstance(kind, TensorType) and (kind.dtype in MIXED or attributes.get("mode", "nearest") == "nearest")
    return is_plain and not is_cropped and is_known and is_taken and attributes.get("axes") is None


def has_kernel(node: Node, factors: Sequence[float | None]) -> bool:
    """True if a resize by these factors (None if not constant) has a kernel: ours for integer factors, or TVM's. TVM picks other
    positions if two are equally near, and rejects its own code for linear resizes with asymmetric coordinates."""
    if None in factors:
        return False
    is_whole = all(factor is not None and factor % 1 == 0 for factor in factors)
    transformed, rounding = (
        str(node.attrs.get(name, usual))
        for name, usual in (("coordinate_transformation_mode", "half_pixel"), ("nearest_mode", "round_prefer_floor"))
    )
    if node.attrs.get("mode", "nearest") == "nearest":
        return is_whole and (transformed, rounding) in REPEATS
    if transformed == "asymmetric":
        return is_whole and len(factors) == IMAGES and node.attrs["mode"] == "linear"
    return transformed in BY_FACTORS


def changes_nothing(node: Node) -> bool:
    """True if a resize that keeps all sizes keeps all elements too."""
    is_cropped = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return not is_cropped and len(node.inputs) > 2 and all(factor == 1 for factor in stated_factors(node) or ())


def said_input(node: Node, slot: int) -> NodeEntry | None:
    """The factors (slot 2) or the sizes (slot 3) of a resize; None if the input is absent or, as in older files, empty."""
    entry = node.inputs[slot] if slot < len(node.inputs) else None
    is_empty = entry is not None and entry.node.value is not None and entry.node.value.size == 0
    return None if is_empty else entry


def stated_factors(node: Node) -> list[float] | None:
    """The constant factors of a resize; None if it has none."""
    scales = said_input(node, 2)
    return None if scales is None or scales.node.value is None else [float(scale) for scale in scales.node.value]


def in_newer_form(node: Node) -> Node:
    """An older resize by integer factors in the form of opset 11, which our kernels take; any other node unchanged."""
    scales = node.inputs[1] if node.op in ops("resizing") and not node.domain and len(node.inputs) == 2 else None
    factors = None if scales is None else scales.node.value
    if factors is None or (factors % 1 != 0).any():
        return node
    attributes = {"mode": "nearest", **node.attrs}
    positions = older_positions(attributes["mode"], factors)
    return node.evolve(op="Resize", inputs=(node.inputs[0], None, scales), attrs={**attributes, **positions})


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
