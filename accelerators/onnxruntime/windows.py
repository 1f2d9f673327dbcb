"""Convolutions and pools whose windows onnxruntime counts or places differently from ONNX, or does not support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from partita.graph.node import Node
from partita.graph.numerics.windows import extent
from partita.graph.ops.traits import FILTERS, ops
from partita.graph.types import Dim, TensorType


def convolution(node: Node) -> str | None:
    """The reason why a Conv, ConvInteger or QLinearConv should run elsewhere, or None."""
    if _dilated_same(node):
        return f"onnxruntime refuses, while it runs, {node.op} that is dilated and padded to the same size"
    if any(axis.padding < -1 for axis in _same_axes(node)):
        return f"onnxruntime pads {node.op} negatively where its automatic padding has windows further apart than they are long"
    return None


def pool(node: Node) -> str | None:
    """The reason why a pool should run elsewhere, or None."""
    if _dilated_same(node):
        return f"onnxruntime makes other sizes of {node.op} that is dilated and padded to the same size"
    if any(axis.padding < 0 for axis in _same_axes(node)):
        return f"onnxruntime pads {node.op} negatively where its automatic padding has windows further apart than they are long"
    if _auto_pad(node) == "VALID" and node.attrs.get("ceil_mode", 0) and any(axis.rest for axis in _axes(node)):
        return f"onnxruntime rounds up the number of {node.op}'s windows in ceil_mode, though its padding is VALID"
    return None


def transposed(node: Node) -> str | None:
    """The reason why a ConvTranspose should run elsewhere, or None."""
    axes = list(_axes(node))
    extra = node.attrs.get("output_padding") or ()
    if any(more >= axis.stride for more, axis in zip(extra, axes)):
        return "onnxruntime does not run ConvTranspose with an output_padding of its stride or more"
    wanted = node.attrs.get("output_shape") or ()
    for size, more, axis in zip(wanted[len(wanted) - len(axes) :], extra or [0] * len(axes), axes):
        if isinstance(axis.size, int) and (axis.size - 1) * axis.stride + axis.span + more < size:
            return "onnxruntime does not make ConvTranspose's result larger than its windows reach"
    return None


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
        """The padding that onnxruntime adds for the same size; the largest possible if the size is dynamic."""
        if not isinstance(self.size, int):
            return self.span - self.stride
        return (-(-self.size // self.stride) - 1) * self.stride + self.span - self.size

    @property
    def rest(self) -> bool:
        """True if elements may remain after the last complete window."""
        return self.stride > 1 and (not isinstance(self.size, int) or (self.size - self.span) % self.stride != 0)


def _axes(node: Node) -> Iterator[_Axis]:
    """The spatial axes; empty if their number is unknown."""
    data = _type(node, 0)
    kernel = node.attrs.get("kernel_shape")
    if kernel is None and node.op not in ops("pool"):
        weights = _type(node, FILTERS[str(node.op)])
        kernel = weights.shape[2:] if weights is not None and weights.shape is not None else ()
    spans: Sequence[Dim] = kernel or ()
    count = len(spans)
    strides, dilations = (node.attrs.get(key) or [1] * count for key in ("strides", "dilations"))
    sizes = data.shape[2:] if data is not None and data.shape is not None else [None] * count
    for size, span, stride, dilation in zip(sizes, spans, strides, dilations):
        if isinstance(span, int) and stride > 0:
            yield _Axis(size, extent(span, dilation), stride)


def _same_axes(node: Node) -> Iterator[_Axis]:
    return _axes(node) if _auto_pad(node).startswith("SAME") else iter(())


def _type(node: Node, slot: int) -> TensorType | None:
    entry = node.inputs[slot] if len(node.inputs) > slot else None
    return entry.type if entry is not None and isinstance(entry.type, TensorType) else None


def _dilated_same(node: Node) -> bool:
    return _auto_pad(node).startswith("SAME") and any(step != 1 for step in node.attrs.get("dilations", ()))


def _auto_pad(node: Node) -> str:
    value = node.attrs.get("auto_pad", "")
    return value.decode() if isinstance(value, bytes) else str(value)
