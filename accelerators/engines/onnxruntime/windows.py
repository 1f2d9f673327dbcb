"""Convolutions and pools whose windows onnxruntime counts or places differently from ONNX, or does not support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from partita.accelerators.engines.quirks import Case
from partita.graph.numerics.windows import extent
from partita.graph.ops.traits import FILTERS, ops
from partita.graph.types import Dim


def is_same_dilated(c: Case) -> bool:
    """True for dilated windows with auto_pad SAME_UPPER or SAME_LOWER."""
    return _is_same(c) and any(step != 1 for step in c.attr("dilations", ()))


def least_padding(c: Case) -> int:
    """The least padding of any axis under auto_pad SAME_UPPER or SAME_LOWER; 0 under any other."""
    return min((axis.padding for axis in _axes(c)), default=0) if _is_same(c) else 0


def leaves_a_rest(c: Case) -> bool:
    """True for a pool with ceil_mode and auto_pad VALID that may have elements after its last complete window."""
    return c.attr("auto_pad") == "VALID" and bool(c.attr("ceil_mode", 0)) and any(axis.rest for axis in _axes(c))


def is_padded_by_a_stride(c: Case) -> bool:
    """True for an output_padding that is at least the stride."""
    return any(more >= axis.stride for more, axis in zip(c.attr("output_padding") or (), _axes(c)))


def is_larger_than_windows(c: Case) -> bool:
    """True for an output_shape larger than what the windows cover."""
    axes = list(_axes(c))
    shape, extra = c.attr("output_shape") or (), c.attr("output_padding") or [0] * len(axes)
    return any(
        isinstance(axis.size, int) and (axis.size - 1) * axis.stride + axis.span + more < size
        for size, more, axis in zip(shape[len(shape) - len(axes) :], extra, axes)
    )


@attrs.frozen
class _Axis:
    """The windows along one axis."""

    size: Dim
    """The size of the data on this axis."""
    span: int
    """The number of positions that one window spans."""
    stride: int

    @property
    def padding(self) -> int:
        """The padding that onnxruntime adds for the same size; the least possible if the size is dynamic."""
        if not isinstance(self.size, int):
            return self.span - self.stride
        return (-(-self.size // self.stride) - 1) * self.stride + self.span - self.size

    @property
    def rest(self) -> bool:
        """True if elements may remain after the last complete window."""
        return self.stride > 1 and (not isinstance(self.size, int) or (self.size - self.span) % self.stride != 0)


def _axes(c: Case) -> Iterator[_Axis]:
    """The spatial axes; empty if their number is unknown."""
    data, kernel = c.shape(), c.attr("kernel_shape")
    if kernel is None and c.op not in ops("pool"):
        kernel = (c.shape(FILTERS[c.op]) or ())[2:]
    spans: Sequence[Dim] = kernel or ()
    count = len(spans)
    strides, dilations = (c.attr(key) or [1] * count for key in ("strides", "dilations"))
    for size, span, stride, dilation in zip([None] * count if data is None else data[2:], spans, strides, dilations):
        if isinstance(span, int) and stride > 0:
            yield _Axis(size, extent(span, dilation), stride)


def _is_same(c: Case) -> bool:
    return str(c.attr("auto_pad", "")).startswith("SAME")
