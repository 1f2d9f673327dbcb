"""Resizing of images."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter
from partita.graph.readers.mxnet.ops.sizes import shape_value, size_at


@converter("UpSampling", "scale num_filter sample_type multi_input_mode", inputs=(1, None), onnx="Resize ConvTranspose")
def upsampling(c: Conversion) -> NodeEntry:
    scale = c.params.integer("scale", least=1)
    if c.params.choice("sample_type", ("nearest", "bilinear")) == "bilinear":
        return _bilinear(c, scale)
    if len(c.inputs) == 1:
        return c.result("Resize", c.inputs[0], None, _scales(c, "scales", (scale, scale)), **_NEAREST)
    parts = [_to_first(c, i, entry, scale) for i, entry in enumerate(c.inputs)]
    if c.params.choice("multi_input_mode", ("concat", "sum"), "concat") == "sum":
        return c.result("Sum", *parts)
    return c.result("Concat", *parts, axis=1)


_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _scales(c: Conversion, what: str, scales: Sequence[float]) -> NodeEntry:
    return c.constant(what, [1.0, 1.0, *scales], "float32")


def _to_first(c: Conversion, i: int, entry: NodeEntry, scale: int) -> NodeEntry:
    """Resizes input `i` to the size of the first one's result."""
    wanted = [size * scale for size in c.sizes(c.inputs[0], (2, 3))]
    sizes = c.sizes(entry, (2, 3))
    factors = [w // s if s else 0 for w, s in zip(wanted, sizes, strict=True)]
    if [f * s for f, s in zip(factors, sizes, strict=True)] != wanted:
        c.fail(f"input {i} of size {tuple(sizes)} cannot be enlarged to {tuple(wanted)}")
    return c.Resize(entry, None, _scales(c, f"scales{i}", factors), **_NEAREST, name=f"part{i}")


def _bilinear(c: Conversion, scale: int) -> NodeEntry:
    """A deconvolution per channel, whose weights are the second input."""
    if len(c.inputs) != 2:
        c.fail(f"the bilinear mode takes data and weights, not {len(c.inputs)} inputs")
    kernel, pad = 2 * scale - scale % 2, scale // 2
    return c.result(
        "ConvTranspose",
        *c.inputs,
        kernel_shape=[kernel] * 2,
        strides=[scale] * 2,
        pads=[pad] * 4,
        group=c.params.integer("num_filter", least=1),
    )


_ROUNDINGS = {
    "odd_scale": (1, 0),
    "to_even_down": (0, -1),
    "to_even_up": (0, 1),
    "to_odd_down": (1, -1),
    "to_odd_up": (1, 1),
}
"""Per mode the parity of the result's size (its remainder by 2), and the step that gives it."""

RESIZE = "height width scale_height scale_width mode align_corners"


@converter("_contrib_BilinearResize2D", RESIZE, inputs=(1, 2), onnx="Resize")
def bilinear_resize(c: Conversion) -> NodeEntry:
    data, params = c.inputs[0], c.params
    where = "align_corners" if params.boolean("align_corners", True) else "half_pixel"
    kind = {"mode": "linear", "coordinate_transformation_mode": where}
    mode = params.choice("mode", ("size", "like", *_ROUNDINGS), "size")
    front = [size_at(c, data, 0), size_at(c, data, 1)]
    if mode == "like":
        if len(c.inputs) != 2:
            c.fail("the mode 'like' takes a second input")
        sizes = [size_at(c, c.inputs[1], axis) for axis in (2, 3)]
    elif mode in ("size", "odd_scale") and ("scale_height" in params or mode != "size"):
        scales = [params.scalar("scale_height"), params.scalar("scale_width")]
        if min(scales) <= 0:
            params.fail("scale_height", "more than 0")
        odd = [size % 2 if mode == "odd_scale" else 0 for size in c.sizes(data, (2, 3))]
        each = zip(c.sizes(data, (2, 3)), scales, odd, strict=True)
        sizes = [int((size - one) * scale) + one for size, scale, one in each]
    elif mode in _ROUNDINGS:
        keep, step = _ROUNDINGS[mode]
        sizes = [size if size % 2 == keep else size + step for size in c.sizes(data, (2, 3))]
    else:
        sizes = [params.integer("height", 1, least=1), params.integer("width", 1, least=1)]
    return c.result("Resize", data, None, None, shape_value(c, "sizes", [*front, *sizes]), **kind)
