"""Slicing, splitting and padding."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.node import NodeEntry
from partita.graph.ops.onnx_crashes import MOST
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter
from partita.graph.readers.mxnet.ops.sizes import shape_value, size_at

END = 2**63 - 1
"""Beyond the end of any axis."""


def cut(
    c: Conversion, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int] = ()
) -> NodeEntry:
    """The MXNet node's value: the first input from `starts` to `ends`."""
    bounds = [
        c.integers(what, values) for what, values in (("starts", starts), ("ends", ends), ("axes", axes))
    ]
    return c.result("Slice", c.inputs[0], *bounds, c.integers("steps", steps) if steps else None)


@converter("slice crop", "begin end step", onnx="Slice")
def slice_(c: Conversion) -> NodeEntry:
    begin, end, step = (c.params.optional_integers(name) for name in ("begin", "end", "step"))
    if not begin or len(begin) != len(end) or (step and len(step) != len(begin)):
        c.params.fail("begin", "as long as end and step")
    steps = [1 if s is None else s for s in step] or [1] * len(begin)
    if 0 in steps:
        c.params.fail("step", "other than 0")
    starts = [(0 if s > 0 else END) if b is None else b for b, s in zip(begin, steps, strict=True)]
    ends = [(END if s > 0 else -END) if e is None else e for e, s in zip(end, steps, strict=True)]
    return cut(c, starts, ends, range(len(begin)), steps if any(s != 1 for s in steps) else ())


@converter("slice_axis", "axis begin end", onnx="Slice")
def slice_axis(c: Conversion) -> NodeEntry:
    end = c.params.optional_integer("end")
    return cut(c, [c.params.integer("begin")], [END if end is None else end], [c.params.integer("axis")])


@converter("slice_like", "axes", inputs=2, onnx="Slice")
def slice_like(c: Conversion) -> NodeEntry:
    data, like = c.inputs
    given = c.params.integers("axes") or tuple(range(c.rank(data)))
    axes = c.axes(given, c.rank(data))
    ends = shape_value(c, "ends", [size_at(c, like, axis) for axis in c.axes(given, c.rank(like))])
    return c.result("Slice", data, c.integers("starts", [0] * len(axes)), ends, c.integers("axes", axes))


@converter("reverse flip", "axis", onnx="Slice")
def reverse(c: Conversion) -> NodeEntry:
    axes = c.params.integers("axis")
    if not axes:
        c.params.fail("axis", "given")
    return cut(c, [END] * len(axes), [-END] * len(axes), axes, [-1] * len(axes))


@converter("SliceChannel split", "num_outputs axis squeeze_axis", onnx="Split")
def split(c: Conversion) -> tuple[NodeEntry, ...]:
    count, axis = c.params.integer("num_outputs", least=1), c.params.integer("axis", 1)
    return _parts(c, axis, _even(c, "num_outputs", count, axis), count)


@converter("_split_v2", "indices axis squeeze_axis sections", onnx="Split")
def split_at(c: Conversion) -> tuple[NodeEntry, ...]:
    axis, count = c.params.integer("axis", 1), c.params.integer("sections", 0, least=0)
    if count:
        return _parts(c, axis, _even(c, "sections", count, axis), count)
    (size,) = c.sizes(c.inputs[0], (axis,))
    starts = list(c.params.integers("indices"))
    starts = [0, *starts] if not starts or starts[0] else starts
    sizes = [end - start for start, end in zip(starts, [*starts[1:], size], strict=True)]
    if min(sizes) < 0:
        c.params.fail("indices", f"rising from 0 to at most {size}")
    return _parts(c, axis, sizes, len(sizes))


def _even(c: Conversion, name: str, count: int, axis: int) -> list[int] | None:
    """The sizes of equal parts; None if the size of the axis is unknown."""
    shape = c.shape(c.inputs[0])
    size = None if shape is None else shape[c.axis(axis, len(shape))]
    if count >= MOST or (isinstance(size, int) and size % count):
        c.params.fail(name, f"a divisor of the axis's size {size or ''}".strip())
    return [size // count] * count if isinstance(size, int) else None


def _parts(c: Conversion, axis: int, sizes: list[int] | None, count: int) -> tuple[NodeEntry, ...]:
    lengths, number = (c.integers("sizes", sizes), None) if sizes else (None, count)
    if not c.params.boolean("squeeze_axis"):
        return c.results("Split", c.inputs[0], lengths, count=count, axis=axis, num_outputs=number)
    if sizes and max(sizes) > 1:
        c.params.fail("squeeze_axis", "False where a part is longer than 1")
    parts = c.ops("Split", count, c.inputs[0], lengths, axis=axis, num_outputs=number, name="split")
    axes = c.integers("axis", [axis])
    if count == 1:
        return (c.result("Squeeze", parts[0], axes),)
    first = c.result("Squeeze", parts[0], axes)
    return (first, *(c.extra(i, "Squeeze", part, axes) for i, part in enumerate(parts[1:], 1)))


@converter("Crop", "offset h_w center_crop", inputs=(1, 2), onnx="Slice")
def crop(c: Conversion) -> NodeEntry:
    """Crops height and width to h_w, or to those of the second input."""
    if len(c.inputs) == 2:
        sizes = c.sizes(c.inputs[1], (2, 3))
    else:
        sizes = c.params.sizes("h_w", 2, None)
    offset = c.params.sizes("offset", 2, 0, least=0)
    if c.params.boolean("center_crop"):
        offset = [
            (whole - part) // 2 for whole, part in zip(c.sizes(c.inputs[0], (2, 3)), sizes, strict=True)
        ]
        if min(offset) < 0:
            c.fail(f"{tuple(sizes)} cannot be cropped from smaller data")
    return cut(c, offset, [o + s for o, s in zip(offset, sizes, strict=True)], [2, 3])


@converter("Pad pad", "mode pad_width constant_value", onnx="Pad")
def pad(c: Conversion) -> NodeEntry:
    data, mode = c.inputs[0], c.params.choice("mode", ("constant", "edge", "reflect"))
    width = c.params.integers("pad_width")
    if not width or len(width) % 2 or min(width) < 0:
        c.params.fail("pad_width", "two numbers, 0 or more, for each axis")
    pads = c.integers("pads", [*width[::2], *width[1::2]])
    value = c.like("value", c.params.number("constant_value", 0.0), data) if mode == "constant" else None
    return c.result("Pad", data, pads, value, mode=mode)
