"""Convolution and its transpose."""

from __future__ import annotations

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.layout import channels_first, channels_last, is_channels_last
from partita.graph.readers.mxnet.ops.registry import converter

WINDOW = "kernel stride dilate pad num_filter num_group no_bias layout"


def bias_of(c: Conversion, default: bool = False) -> NodeEntry | None:
    """The third input, which must be present exactly if no_bias is not set."""
    without = c.params.boolean("no_bias", default)
    if without != (len(c.inputs) == 2):
        c.fail(f"no_bias is {without}, and the op has {len(c.inputs)} inputs")
    return None if without else c.inputs[2]


@converter("Convolution Convolution_v1", WINDOW, inputs=(2, 3), onnx="Conv")
def convolution(c: Conversion) -> NodeEntry:
    kernel = kernel_of(c)
    space = len(kernel)
    bias = bias_of(c)
    last = is_channels_last(c, space + 2)
    data, weight = c.inputs[:2]
    if last:
        data = channels_first(c, "channels_first", data, space + 2)
        weight = channels_first(c, "weight_channels_first", weight, space + 2)
    window = {
        "kernel_shape": kernel,
        "strides": c.params.sizes("stride", space, 1),
        "dilations": c.params.sizes("dilate", space, 1),
        "pads": c.params.sizes("pad", space, 0, least=0) * 2,
        "group": c.params.integer("num_group", 1, least=1),
    }
    if last:
        return channels_last(c, c.Conv(data, weight, bias, **window, name="conv"), space + 2)
    shape = (None, c.params.integer("num_filter", least=1), *(None for _ in kernel))
    return c.result("Conv", data, weight, bias, shape=shape, **window)


@converter("Deconvolution", f"{WINDOW} adj target_shape", inputs=(2, 3), onnx="ConvTranspose")
def deconvolution(c: Conversion) -> NodeEntry:
    kernel = kernel_of(c)
    space = len(kernel)
    if is_channels_last(c, space + 2):
        c.params.fail("layout", "one with the channels first")
    strides, dilations = c.params.sizes("stride", space, 1), c.params.sizes("dilate", space, 1)
    begin = c.params.sizes("pad", space, 0, least=0)
    extra = c.params.sizes("adj", space, 0, least=0)
    target = c.params.integers("target_shape")
    if any(target):
        begin, extra = _pads_for(c, target, kernel, strides, dilations)
    return c.result(
        "ConvTranspose",
        c.inputs[0],
        c.inputs[1],
        bias_of(c, default=True),
        shape=(None, c.params.integer("num_filter", least=1), *(None for _ in kernel)),
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads=begin * 2,
        output_padding=extra if any(extra) else None,
        group=c.params.integer("num_group", 1, least=1),
    )


def kernel_of(c: Conversion) -> list[int]:
    """The kernel, of one to three dimensions."""
    kernel = c.params.integers("kernel")
    if not 1 <= len(kernel) <= 3 or min(kernel) < 1:
        c.params.fail("kernel", "one to three sizes")
    return list(kernel)


def _pads_for(
    c: Conversion, target: tuple[int, ...], kernel: list[int], strides: list[int], dilations: list[int]
) -> tuple[list[int], list[int]]:
    """The padding, and the output padding, for which the output has the size target_shape."""
    space = len(kernel)
    if len(target) != space or min(target) < 1:
        c.params.fail("target_shape", f"{space} sizes")
    sizes = c.sizes(c.inputs[0], range(2, space + 2))
    full = [
        s * (n - 1) + d * (k - 1) + 1 for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    surplus = [f - t for f, t in zip(full, target, strict=True)]
    if min(surplus) < 0:
        c.params.fail("target_shape", f"at most {tuple(full)}")
    return [(n + 1) // 2 for n in surplus], [n % 2 for n in surplus]
