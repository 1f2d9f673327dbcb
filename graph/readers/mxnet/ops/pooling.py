"""Pooling over windows, over all positions, and to a given size.

MXNet's convention "full" rounds the number of windows up. ONNX's ceil_mode is used for it only if the sizes are unknown
or there is no other difference: the two disagree on the elements that the last window counts."""

from __future__ import annotations

import math

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.convolution import kernel_of
from partita.graph.readers.mxnet.ops.layout import channels_first, channels_last, is_channels_last
from partita.graph.readers.mxnet.ops.registry import converter

PARAMS = "kernel pool_type global_pool pooling_convention stride pad p_value count_include_pad layout"
KINDS = ("max", "avg", "sum", "lp")


@converter("Pooling", PARAMS, onnx="MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool")
def pooling(c: Conversion) -> NodeEntry:
    rank = len(c.params.integers("kernel")) + 2
    if "layout" in c.params and rank == 2:
        rank = len(c.params.string("layout"))
    if not is_channels_last(c, rank):
        return _Pooling(c, c.inputs[0], final=True).value()
    data = channels_first(c, "channels_first", c.inputs[0], rank)
    return channels_last(c, _Pooling(c, data, final=False).value(), rank)


class _Pooling:
    """One pooling of channels-first data; `final` is true if its value is the MXNet node's."""

    def __init__(self, c: Conversion, data: NodeEntry, final: bool) -> None:
        self.c = c
        self.data = data
        self.final = final
        self.kind = c.params.choice("pool_type", KINDS, "max")

    def value(self) -> NodeEntry:
        return self.over_everything() if self.c.params.boolean("global_pool") else self.in_windows()

    def make(self, op: str, *inputs: NodeEntry, **attrs: object) -> NodeEntry:
        """Makes the nodes and returns the value of the last one."""
        if not self.final:
            return self.c.op(op, *inputs, **attrs, name="pool")
        rank = len(self.c.params.integers("kernel")) + 2
        return self.c.result(op, *inputs, shape=(None,) * rank if rank > 2 else None, **attrs)

    def power(self) -> int:
        return self.c.params.integer("p_value", least=1)

    def over_everything(self) -> NodeEntry:
        if self.kind == "max":
            return self.make("GlobalMaxPool", self.data)
        if self.kind == "avg":
            return self.make("GlobalAveragePool", self.data)
        if self.kind == "lp":
            return self.make("GlobalLpPool", self.data, p=self.power())
        axes = self.c.integers("axes", range(2, self.c.rank(self.data)))
        return self.make("ReduceSum", self.data, axes, keepdims=1)

    def in_windows(self) -> NodeEntry:
        params, kernel = self.c.params, kernel_of(self.c)
        space = len(kernel)
        window = {"kernel_shape": kernel, "strides": params.sizes("stride", space, 1)}
        begin = params.sizes("pad", space, 0, least=0)
        if any(p >= k for p, k in zip(begin, kernel, strict=True)):
            params.fail("pad", "smaller than the kernel")
        end = self.end_padding(kernel, window["strides"], begin)
        if self.kind == "max":
            return self.windows("MaxPool", begin, end, **window)
        if self.kind == "avg":
            return self.average(begin, end, window)
        if end is None:
            self.c.unknown("the size of the data")
        if self.kind == "lp":
            return self.windows("LpPool", begin, end, p=self.power(), **window)
        mean = self.c.AveragePool(self.data, pads=begin + end, count_include_pad=1, **window, name="mean")
        return self.make("Mul", mean, self.c.like("window", math.prod(kernel), self.data))

    def average(self, begin: list[int], end: list[int] | None, window: dict[str, list[int]]) -> NodeEntry:
        """Padding counts as MXNet declares, but never beyond it in the last window: such padding becomes a separate node."""
        counts = self.c.params.boolean("count_include_pad", True) and any(begin)
        if counts and end == begin:
            return self.windows("AveragePool", begin, end, count_include_pad=1, **window)
        if not counts:
            return self.windows("AveragePool", begin, end, **window)
        pads = self.c.integers("pads", [0, 0, *begin, 0, 0, *begin])
        self.data = self.c.Pad(self.data, pads, name="padded")
        beyond = None if end is None else [e - b for b, e in zip(begin, end, strict=True)]
        return self.windows("AveragePool", [0] * len(begin), beyond, **window)

    def windows(self, op: str, begin: list[int], end: list[int] | None, **attrs: object) -> NodeEntry:
        if end is None:
            return self.make(op, self.data, pads=begin * 2, ceil_mode=1, **attrs)
        return self.make(op, self.data, pads=begin + end, **attrs)

    def end_padding(self, kernel: list[int], strides: list[int], begin: list[int]) -> list[int] | None:
        """The padding at the end for which rounding down gives MXNet's number of windows; None if sizes are unknown."""
        convention = self.c.params.choice("pooling_convention", ("valid", "full", "same"), "valid")
        if convention == "valid":
            return list(begin)
        if convention == "same":
            self.c.params.fail("pooling_convention", "valid or full")
        dims = (self.c.shape(self.data) or (None,) * (len(kernel) + 2))[2:]
        if len(dims) != len(kernel):
            self.c.fail(f"a kernel of {len(kernel)} dimensions for data of {len(dims) + 2}")
        end = []
        for size, k, s, p in zip(dims, kernel, strides, begin, strict=True):
            if not isinstance(size, int):
                # ONNX drops a last window that is entirely in the padding; MXNet does not.
                return self.c.unknown("the size of the data") if s > k - p else None
            windows = 1 + -(-(size + 2 * p - k) // s)
            more = max(0, (windows - 1) * s + k - (size + 2 * p))
            if p + more >= k:
                self.c.fail(
                    f"the last window lies in the padding alone (size {size}, kernel {k}, stride {s}, pad {p})"
                )
            end.append(p + more)
        return end


@converter("_contrib_AdaptiveAvgPooling2D", "output_size", onnx="AveragePool GlobalAveragePool")
def adaptive_average(c: Conversion) -> NodeEntry:
    wanted = c.params.integers("output_size", (1, 1))
    wanted = wanted * 2 if len(wanted) == 1 else wanted
    if len(wanted) != 2 or min(wanted) < 1:
        c.params.fail("output_size", "one or two sizes")
    if wanted == (1, 1):
        return c.result("GlobalAveragePool", c.inputs[0])
    sizes = c.sizes(c.inputs[0], (-2, -1))
    if any(size % out for size, out in zip(sizes, wanted, strict=True)):
        c.params.fail("output_size", f"a divisor of the data's size {tuple(sizes)}")
    kernel = [size // out for size, out in zip(sizes, wanted, strict=True)]
    return c.result("AveragePool", c.inputs[0], kernel_shape=kernel, strides=kernel)
