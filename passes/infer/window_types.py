"""Sizes of windowed ops for which ONNX's inference is wrong.

In ceil mode ONNX counts a window of a pool that would begin in the padding, and it rounds up if the padding is
automatic. For a transposed convolution with automatic padding it adds the output padding, which the
padding already includes. For one with an output_shape it drops the last axes if the result is smaller than the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.graph.errors import TypeMismatch
from partita.graph.node import Node
from partita.graph.numerics.windows import SAME, extent, window
from partita.graph.ops.traits import ops
from partita.graph.types import Dim, TensorType, Type


def is_miscounted(node: Node) -> bool:
    """True if ONNX's inference may compute wrong sizes for the node."""
    if node.domain or not node.attrs:
        return False
    if node.op in ops("pool"):
        return bool(node.attrs.get("ceil_mode", 0))
    if node.op != "ConvTranspose":
        return False
    return bool(node.attrs.get("output_shape")) or (_auto_pad(node) in SAME and any(node.attrs.get("output_padding") or ()))


def windowed_types(node: Node, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
    """The types of the node's outputs: of a pool the values, and the indices of the maxima."""
    given = [kind if isinstance(kind, TensorType) else None for kind in inputs]
    if not given or given[0] is None:
        return ()
    shape = None
    if given[0].shape is not None:
        shape = _pooled(node, given[0].shape) if node.op in ops("pool") else _spread(node, given)
    return (attrs.evolve(given[0], shape=shape), TensorType("int64", shape))[: len(node.output_names)]


def _pooled(node: Node, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    kernel = node.attrs["kernel_shape"]
    rest = _geometry(node, shape, len(kernel))
    if min(kernel) < 1:
        raise TypeMismatch(f"a kernel of {list(kernel)} has no places")
    # Each axis is computed separately; one of unknown size remains unknown.
    sizes = [size if isinstance(size, int) else 1 for size in shape[2:]]
    counted = window(sizes, kernel, rest["strides"], rest["dilations"], rest["pads"], _auto_pad(node), 1).outputs
    return (*shape[:2], *[count if isinstance(size, int) else None for size, count in zip(shape[2:], counted)])


def _spread(node: Node, given: Sequence[TensorType | None]) -> tuple[Dim, ...] | None:
    x, w = given[0], given[1] if len(given) > 1 else None
    assert x is not None and x.shape is not None
    if w is None or w.shape is None or len(w.shape) != len(x.shape) or len(x.shape) < 3:
        return None
    n = len(x.shape) - 2
    channels = w.shape[1] * node.attrs.get("group", 1) if isinstance(w.shape[1], int) else None
    wanted = node.attrs.get("output_shape")
    if wanted:
        if len(wanted) not in (n, n + 2):
            raise TypeMismatch(f"output_shape has {len(wanted)} numbers for {n} axes")
        return (x.shape[0], channels, *wanted[-n:])
    rest = _geometry(node, x.shape, n)
    strides, dilations = rest["strides"] or (1,) * n, rest["dilations"] or (1,) * n
    extra = node.attrs["output_padding"]
    if len(extra) != n:
        raise TypeMismatch(f"output_padding has {len(extra)} numbers for {n} axes")
    spatial: list[Dim] = []
    for size, kernel, stride, dilation, more in zip(x.shape[2:], w.shape[2:], strides, dilations, extra, strict=True):
        known = isinstance(size, int) and isinstance(kernel, int) and size > 0
        whole = (size - 1) * stride + extent(kernel, dilation) + more if known else None  # type: ignore[operator, arg-type]
        spatial.append(None if whole is None else min(size * stride, whole))  # type: ignore[operator]
    return (x.shape[0], channels, *spatial)


def _geometry(node: Node, shape: tuple[Dim, ...], n: int) -> Mapping[str, Any]:
    """Strides, dilations and padding, checked against the axes."""
    geometry = {key: node.attrs.get(key) for key in ("strides", "dilations", "pads")}
    if len(shape) != n + 2 or any(value and len(value) != n * (1 + (key == "pads")) for key, value in geometry.items()):
        raise TypeMismatch(f"the shape {list(shape)} does not fit a kernel of {n} axes and {geometry}")
    if min(geometry["strides"] or (1,)) < 1 or min(geometry["dilations"] or (1,)) < 1:
        raise TypeMismatch(f"strides and dilations are 1 or more, not {geometry}")
    return geometry


def _auto_pad(node: Node) -> str:
    value = node.attrs.get("auto_pad", "NOTSET")
    return value.decode() if isinstance(value, bytes) else str(value)
