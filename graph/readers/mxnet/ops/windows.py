"""Convolution, pooling and resizing of images.

ONNX is channels-first; for channels-last layouts transposes are put around the op. MXNet's pooling convention "full" rounds the
number of windows up. ONNX's ceil_mode is used for it only if the sizes are unknown or there is no other difference: the two
disagree on the elements that the last window counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.attributes import Attributes
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.table import Known, Shape, converter, number, one_op, size_along, sizes
from partita.graph.types import Dim

# -- layouts ---------------------------------------------------------------------------------------------

LAYOUTS = ("NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC")
"""Batch, channels, depth, height, width."""


def is_channels_last(c: Conversion, rank: int) -> bool:
    """True if the parameter `layout` puts the channels last; it must fit the rank."""
    if "layout" not in c.params:
        return False
    layout = c.params.choice("layout", LAYOUTS)
    if len(layout) != rank:
        c.params.fail("layout", f"a layout of {rank} dimensions")
    return layout.endswith("C")


def channels_first(c: Conversion, what: str, entry: NodeEntry, rank: int) -> NodeEntry:
    """The value with its last axis moved to position 1."""
    return c.transposed(entry, [0, rank - 1, *range(1, rank - 1)], name=what)


def channels_last(c: Conversion, entry: NodeEntry, rank: int) -> NodeEntry:
    """The MXNet node's value, with axis 1 moved to the end."""
    return c.result("Transpose", entry, perm=[0, *range(2, rank), 1])


# -- convolution -----------------------------------------------------------------------------------------

WINDOW = "kernel stride dilate pad num_filter num_group no_bias layout"


def kernel_of(c: Conversion) -> list[int]:
    """The kernel, of one to three dimensions."""
    kernel = c.params.integers("kernel")
    if not 1 <= len(kernel) <= 3 or min(kernel) < 1:
        c.params.fail("kernel", "one to three sizes")
    return list(kernel)


def bias_of(c: Conversion, default: bool = False) -> NodeEntry | None:
    """The third input, which must be present exactly if no_bias is not set."""
    without = c.params.boolean("no_bias", default)
    if without != (len(c.inputs) == 2):
        c.fail(f"no_bias is {without}, and the op has {len(c.inputs)} inputs")
    return None if without else c.inputs[2]


def _channels_of_result(c: Conversion, kernel: list[int]) -> tuple[int | None, ...]:
    """The shape of a convolution's result, of which only the channels are known."""
    return (None, c.params.integer("num_filter", least=1), *(None for _ in kernel))


def _of_convolution(params: Attributes, known: Known) -> list[Shape | None]:
    kernel, filters = params.integers("kernel"), params.integer("num_filter", least=1)
    groups = params.integer("num_group", 1, least=1)
    rank = len(kernel) + 2
    if params.string("layout", "NC").endswith("C") and "layout" in params:
        return [(None,) * rank, (None,) * rank, (filters,)]
    depth, channels = size_along(known(1), 1), size_along(known(0), 1)
    depth = channels // groups if isinstance(channels, int) and depth is None else depth
    channels = depth * groups if isinstance(depth, int) else None
    return [(None, channels, *(None for _ in kernel)), (filters, depth, *map(_positive, kernel)), (filters,)]


def _positive(value: int) -> Dim:
    return value if value > 0 else None


@converter("Convolution Convolution_v1", WINDOW, inputs=(2, 3), onnx="Conv", implied=_of_convolution)
def convolution(c: Conversion) -> NodeEntry:
    kernel = kernel_of(c)
    space, bias = len(kernel), bias_of(c)
    is_last = is_channels_last(c, space + 2)
    data, weight = c.inputs[:2]
    if is_last:
        data = channels_first(c, "channels_first", data, space + 2)
        weight = channels_first(c, "weight_channels_first", weight, space + 2)
    window = {
        "kernel_shape": kernel,
        "strides": c.params.sizes("stride", space, 1),
        "dilations": c.params.sizes("dilate", space, 1),
        "pads": c.params.sizes("pad", space, 0, least=0) * 2,
        "group": c.params.integer("num_group", 1, least=1),
    }
    if is_last:
        return channels_last(c, c.Conv(data, weight, bias, **window, name="conv"), space + 2)
    return c.result("Conv", data, weight, bias, shape=_channels_of_result(c, kernel), **window)


def _of_deconvolution(params: Attributes, known: Known) -> list[Shape | None]:
    kernel, filters = params.integers("kernel"), params.integer("num_filter", least=1)
    groups = params.integer("num_group", 1, least=1)
    channels = size_along(known(1), 0) or size_along(known(0), 1)
    weights = (channels, filters // groups, *map(_positive, kernel))
    return [(None, channels, *(None for _ in kernel)), weights, (filters,)]


@converter("Deconvolution", f"{WINDOW} adj target_shape", inputs=(2, 3), onnx="ConvTranspose", implied=_of_deconvolution)
def deconvolution(c: Conversion) -> NodeEntry:
    kernel = kernel_of(c)
    space = len(kernel)
    if is_channels_last(c, space + 2):
        c.params.fail("layout", "one with the channels first")
    strides, dilations = c.params.sizes("stride", space, 1), c.params.sizes("dilate", space, 1)
    begin, extra = (c.params.sizes(name, space, 0, least=0) for name in ("pad", "adj"))
    target = c.params.integers("target_shape")
    if any(target):
        begin, extra = _pads_for(c, target, kernel, strides, dilations)
    return c.result(
        "ConvTranspose", *c.inputs[:2], bias_of(c, default=True),
        shape=_channels_of_result(c, kernel), kernel_shape=kernel, strides=strides, dilations=dilations, pads=begin * 2,
        output_padding=extra if any(extra) else None, group=c.params.integer("num_group", 1, least=1),
    )


def _pads_for(
    c: Conversion, target: tuple[int, ...], kernel: list[int], strides: list[int], dilations: list[int]
) -> tuple[list[int], list[int]]:
    """The padding, and the output padding, for which the output has the size target_shape."""
    space = len(kernel)
    if len(target) != space or min(target) < 1:
        c.params.fail("target_shape", f"{space} sizes")
    shape = c.sizes(c.data, range(2, space + 2))
    full = [s * (n - 1) + d * (k - 1) + 1 for n, k, s, d in zip(shape, kernel, strides, dilations, strict=True)]
    surplus = [f - t for f, t in zip(full, target, strict=True)]
    if min(surplus) < 0:
        c.params.fail("target_shape", f"at most {tuple(full)}")
    return [(n + 1) // 2 for n in surplus], [n % 2 for n in surplus]


# -- pooling ---------------------------------------------------------------------------------------------

def _of_pooling(params: Attributes, known: Known) -> list[Shape | None]:
    kernel = params.integers("kernel")
    return [(None,) * (len(kernel) + 2)] if kernel else []


@converter(
    "Pooling", "kernel pool_type global_pool pooling_convention stride pad p_value count_include_pad layout",
    implied=_of_pooling, onnx="MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool",
)
def pooling(c: Conversion) -> NodeEntry:
    space = len(c.params.integers("kernel"))
    rank = space + 2
    if "layout" in c.params and not space:
        rank = len(c.params.string("layout"))
    if is_channels_last(c, rank):
        op, inputs, attributes = _pool(c, channels_first(c, "channels_first", c.data, rank))
        return channels_last(c, c.op(op, *inputs, **attributes, name="pool"), rank)
    op, inputs, attributes = _pool(c, c.data)
    return c.result(op, *inputs, shape=(None,) * rank if space else None, **attributes)


OPS = {"max": "MaxPool", "avg": "AveragePool", "lp": "LpPool"}
"""ONNX's op by the parameter `pool_type`."""


def _pool(c: Conversion, data: NodeEntry) -> tuple[str, tuple[NodeEntry, ...], dict[str, Any]]:
    """The op that computes the pooling of channels-first data, its inputs and its attributes."""
    kind = c.params.choice("pool_type", ("max", "avg", "sum", "lp"), "max")
    if c.params.boolean("global_pool"):
        if kind == "sum":
            return "ReduceSum", (data, c.integers("axes", range(2, c.rank(data)))), {"keepdims": 1}
        return f"Global{OPS[kind]}", (data,), {"p": c.params.integer("p_value", least=1)} if kind == "lp" else {}
    kernel = kernel_of(c)
    window = {"kernel_shape": kernel, "strides": c.params.sizes("stride", len(kernel), 1)}
    begin = c.params.sizes("pad", len(kernel), 0, least=0)
    if any(p >= k for p, k in zip(begin, kernel, strict=True)):
        c.params.fail("pad", "smaller than the kernel")
    end = _end_padding(c, data, kernel, window["strides"], begin)
    if kind in ("sum", "lp") and end is None:
        c.unknown("the size of the data")
    if kind == "sum":
        mean = c.AveragePool(data, pads=[*begin, *(end or ())], count_include_pad=1, **window, name="mean")
        return "Mul", (mean, c.like("window", math.prod(kernel), data)), {}
    more = {"p": c.params.integer("p_value", least=1)} if kind == "lp" else {}
    if kind == "avg" and c.params.boolean("count_include_pad", True) and any(begin):
        if end == begin:
            more = {"count_include_pad": 1}
        else:  # Padding beyond the declared one does not count, so that the declared one becomes a separate node.
            data = c.Pad(data, c.integers("pads", [0, 0, *begin, 0, 0, *begin]), name="padded")
            end = None if end is None else [e - b for b, e in zip(begin, end, strict=True)]
            begin = [0] * len(begin)
    padding = {"pads": begin * 2, "ceil_mode": 1} if end is None else {"pads": begin + end}
    return OPS[kind], (data,), {**padding, **more, **window}


def _end_padding(c: Conversion, data: NodeEntry, kernel: list[int], strides: list[int], begin: list[int]) -> list[int] | None:
    """The padding at the end for which rounding down gives MXNet's number of windows; None if sizes are unknown."""
    convention = c.params.choice("pooling_convention", ("valid", "full", "same"), "valid")
    if convention == "valid":
        return list(begin)
    if convention == "same":
        c.params.fail("pooling_convention", "valid or full")
    dims = (c.shape(data) or (None,) * (len(kernel) + 2))[2:]
    if len(dims) != len(kernel):
        c.fail(f"a kernel of {len(kernel)} dimensions for data of {len(dims) + 2}")
    end = []
    for size, k, s, p in zip(dims, kernel, strides, begin, strict=True):
        if not isinstance(size, int):
            # ONNX drops a last window that is entirely in the padding; MXNet does not.
            return c.unknown("the size of the data") if s > k - p else None
        windows = 1 + -(-(size + 2 * p - k) // s)
        more = max(0, (windows - 1) * s + k - (size + 2 * p))
        if p + more >= k:
            c.fail(f"the last window lies in the padding alone (size {size}, kernel {k}, stride {s}, pad {p})")
        end.append(p + more)
    return end


@converter("_contrib_AdaptiveAvgPooling2D", "output_size", onnx="AveragePool GlobalAveragePool")
def adaptive_average(c: Conversion) -> NodeEntry:
    result = c.params.integers("output_size", (1, 1))
    result = result * 2 if len(result) == 1 else result
    if len(result) != 2 or min(result) < 1:
        c.params.fail("output_size", "one or two sizes")
    if result == (1, 1):
        return c.result("GlobalAveragePool", c.data)
    image = c.sizes(c.data, (-2, -1))
    if any(size % out for size, out in zip(image, result, strict=True)):
        c.params.fail("output_size", f"a divisor of the data's size {tuple(image)}")
    kernel = [size // out for size, out in zip(image, result, strict=True)]
    return c.result("AveragePool", c.data, kernel_shape=kernel, strides=kernel)


one_op("ROIPooling", "MaxRoiPool", inputs=2, pooled_shape=sizes("pooled_size", 2, None), spatial_scale=number("spatial_scale"))


@converter(
    "_contrib_ROIAlign", "pooled_size spatial_scale sample_ratio position_sensitive aligned", inputs=2, onnx="RoiAlign"
)
def roi_align(c: Conversion) -> NodeEntry:
    data, rois = c.inputs
    if c.params.boolean("position_sensitive"):
        c.params.fail("position_sensitive", "False")
    height, width = c.params.sizes("pooled_size", 2, None)
    image, boxes = c.ops("Split", 2, rois, c.integers("columns", [1, 4]), axis=1, name="roi")
    flat = c.Squeeze(image, c.integers("axis", [1]), name="image_flat")
    return c.result(
        "RoiAlign", data, boxes, c.cast("image", flat, "int64"),
        coordinate_transformation_mode="half_pixel" if c.params.boolean("aligned") else "output_half_pixel",
        output_height=height, output_width=width,
        sampling_ratio=max(c.params.integer("sample_ratio", -1), 0), spatial_scale=c.params.number("spatial_scale"),
    )


# -- resizing --------------------------------------------------------------------------------------------

NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


@converter("UpSampling", "scale num_filter sample_type multi_input_mode", inputs=(1, None), onnx="Resize ConvTranspose")
def upsampling(c: Conversion) -> NodeEntry:
    scale = c.params.integer("scale", least=1)
    if c.params.choice("sample_type", ("nearest", "bilinear")) == "bilinear":
        return _bilinear(c, scale)
    if len(c.inputs) == 1:
        return c.result("Resize", c.data, None, _scales(c, "scales", (scale, scale)), **NEAREST)
    parts = [_to_first(c, i, entry, scale) for i, entry in enumerate(c.inputs)]
    if c.params.choice("multi_input_mode", ("concat", "sum"), "concat") == "sum":
        return c.result("Sum", *parts)
    return c.result("Concat", *parts, axis=1)


def _scales(c: Conversion, what: str, scales: Sequence[float]) -> NodeEntry:
    return c.constant(what, [1.0, 1.0, *scales], "float32")


def _to_first(c: Conversion, i: int, entry: NodeEntry, scale: int) -> NodeEntry:
    """Resizes input `i` to the size of the first one's result."""
    target = [size * scale for size in c.sizes(c.data, (2, 3))]
    image = c.sizes(entry, (2, 3))
    factors = [t // s if s else 0 for t, s in zip(target, image, strict=True)]
    if [f * s for f, s in zip(factors, image, strict=True)] != target:
        c.fail(f"input {i} of size {tuple(image)} cannot be enlarged to {tuple(target)}")
    return c.Resize(entry, None, _scales(c, f"scales{i}", factors), **NEAREST, name=f"part{i}")


def _bilinear(c: Conversion, scale: int) -> NodeEntry:
    """A deconvolution per channel, whose weights are the second input."""
    if len(c.inputs) != 2:
        c.fail(f"the bilinear mode takes data and weights, not {len(c.inputs)} inputs")
    kernel, pad, group = 2 * scale - scale % 2, scale // 2, c.params.integer("num_filter", least=1)
    window = {"kernel_shape": [kernel] * 2, "strides": [scale] * 2, "pads": [pad] * 4}
    return c.result("ConvTranspose", *c.inputs, **window, group=group)


ROUNDINGS = {
    "odd_scale": (1, 0), "to_even_down": (0, -1), "to_even_up": (0, 1), "to_odd_down": (1, -1), "to_odd_up": (1, 1),
}
"""Per mode the parity of the result's size (its remainder by 2), and the step that gives it."""


@converter(
    "_contrib_BilinearResize2D", "height width scale_height scale_width mode align_corners", inputs=(1, 2), onnx="Resize"
)
def bilinear_resize(c: Conversion) -> NodeEntry:
    params = c.params
    where = "align_corners" if params.boolean("align_corners", True) else "half_pixel"
    mode = params.choice("mode", ("size", "like", *ROUNDINGS), "size")
    front = [c.size_at(c.data, 0), c.size_at(c.data, 1)]
    if mode == "like":
        if len(c.inputs) != 2:
            c.fail("the mode 'like' takes a second input")
        space = [c.size_at(c.inputs[1], axis) for axis in (2, 3)]
    elif mode in ("size", "odd_scale") and ("scale_height" in params or mode != "size"):
        scales = [params.scalar("scale_height"), params.scalar("scale_width")]
        if min(scales) <= 0:
            params.fail("scale_height", "more than 0")
        odd = [size % 2 if mode == "odd_scale" else 0 for size in c.sizes(c.data, (2, 3))]
        each = zip(c.sizes(c.data, (2, 3)), scales, odd, strict=True)
        space = [int((size - one) * scale) + one for size, scale, one in each]
    elif mode in ROUNDINGS:
        keep, step = ROUNDINGS[mode]
        space = [size if size % 2 == keep else size + step for size in c.sizes(c.data, (2, 3))]
    else:
        space = [params.integer("height", 1, least=1), params.integer("width", 1, least=1)]
    shape = c.shape_value("sizes", [*front, *space])
    return c.result("Resize", c.data, None, None, shape, mode="linear", coordinate_transformation_mode=where)
