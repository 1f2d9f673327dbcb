"""Scales of quantized values, accumulators of their products, bounds of these, and factors that dequantize the sums."""

from __future__ import annotations

import math
from collections.abc import Collection

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.quantized import STORED, around_zero, is_weight
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.sizes.extent import Extent, Size, sizes_of
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import Array, numpy_dtype

LEAST = 2.0**-100
"""The smallest scale by which values are multiplied and divided without loss; the largest is its inverse."""

BYTE_TYPES = ("uint8", "int8")
"""The element types of values whose products are computed in integers."""

HALF_BYTES = frozenset(("int4", "uint4"))
"""The element types of weights that are multiplied as bytes."""

BYTE = 255
"""The largest unsigned byte."""

LARGEST_SUM = 2**31 - 1
"""The largest int32."""

DEEPEST = LARGEST_SUM // BYTE**2
"""The number of products of two bytes whose sum fits int32."""


def is_lossless(*scales: Array) -> bool:
    """True if integers can be multiplied by each of these scales without overflow or underflow."""
    return all(bool(np.all((scale == 0) | ((np.abs(scale) >= LEAST) & (np.abs(scale) <= 1 / LEAST)))) for scale in scales)


@attrs.frozen(slots=True, eq=False)
class Scaling:
    """A scale and a zero point: an integer q represents (q - point) * scale."""

    scale: Array
    """One scale, or one for each position along the axis."""
    point: Array
    """Zero points of the same shape, in the integers' element type."""
    axis: int | None
    """The axis along which scales differ; None for a single scale."""

    def is_like(self, other: Scaling | None) -> bool:
        """True if the same integers represent the same numbers."""
        if other is None or self.axis != other.axis or self.point.dtype != other.point.dtype:
            return False
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.point, other.point)

    @property
    def is_plain(self) -> bool:
        """True for a single, positive, lossless scale. Then larger integers represent larger numbers."""
        return self.axis is None and bool(self.scale > 0) and is_lossless(self.scale)

    @property
    def unsigned_point(self) -> int:
        """The zero point of a single scale after int8 is shifted to uint8."""
        return int(self.point) + (128 if self.point.dtype == np.int8 else 0)


def scaling_of(node: Node, integers: Collection[str] = STORED) -> Scaling | None:
    """The scaling of an ONNX QuantizeLinear or DequantizeLinear; None for other ops, other integer types, blocks, and scales or
    zero points that are not constant."""
    if node.op not in ops("quantizing") or node.domain or node.attrs.get("block_size", 0):
        return None
    source, scale = node.inputs[0], node.inputs[1]
    whole, number = (node[0], source) if node.op == "QuantizeLinear" else (source, node[0])
    types = [entry.type if entry is not None else None for entry in (whole, number)]
    if any(sizes_of(value_type) is None for value_type in types) or scale is None or scale.node.value is None:
        return None
    stored, computed = (value_type.dtype for value_type in types)  # type: ignore[union-attr]
    wide = node.op == "DequantizeLinear" and stored == "int32"
    given = node.inputs[2] if len(node.inputs) > 2 else None
    known = given is None or given.node.value is not None
    if computed != "float32" or not known or not (stored in integers or wide) or scale.node.value.dtype != np.float32:
        return None
    array = scale.node.value
    point = np.zeros(array.shape, numpy_dtype(stored)) if given is None else given.node.value
    assert point is not None
    if array.size == point.size == 1:
        return Scaling(array.reshape(()), point.reshape(-1)[0], None)
    shape = any_shape(node[0])
    axis = int(node.attrs.get("axis", 1)) % max(1, len(shape or ()))
    if array.ndim != 1 or not shape or shape[axis] != array.size or point.size != array.size:
        return None
    return Scaling(array, point, axis)


def weight_of(entry: NodeEntry | None, axis: int) -> tuple[Array, Array] | None:
    """A weight's integers as int8 with zero point 0, and their scales; None if they do not fit."""
    known = distances_of(entry, axis)
    signed = None if known is None else around_zero(known[0], np.zeros((), np.int16))
    return None if known is None or signed is None else (signed, known[1])


def distances_of(entry: NodeEntry | None, axis: int) -> tuple[Array, Array] | None:
    """A weight's integers with their zero point subtracted, and their scale or scales along the axis; None for any other value
    than a weight of at most 8 bits."""
    if entry is None or not is_weight(entry):
        return None
    scaling = scaling_of(entry.node.evolve(op="DequantizeLinear", domain=""), STORED | HALF_BYTES)
    source = entry.node.inputs[0]
    array = None if source is None else source.node.value
    if scaling is None or array is None or array.dtype.itemsize != 1 or scaling.axis not in (None, axis):
        return None
    if array.dtype == np.int8 and not scaling.point.any():
        return array, scaling.scale
    point = scaling.point.astype(np.int16)
    shape = [-1 if d == scaling.axis else 1 for d in range(array.ndim)]
    return array.astype(np.int16) - (point if scaling.axis is None else point.reshape(shape)), scaling.scale


def whole_weight(entry: NodeEntry | None, point: NodeEntry | None) -> Array | None:
    """A constant matrix of bytes as int8 with zero point 0; None if they do not fit."""
    array = None if entry is None else entry.node.value
    zero = np.zeros((), np.int16) if point is None else point.node.value
    if array is None or zero is None or array.ndim != 2 or array.dtype.itemsize != 1 or zero.ndim > 1:
        return None
    return around_zero(array, zero.astype(np.int16))


PIECE = 1 << 20
"""Approximate number of weights processed at a time."""


def sums_of(
    scaling: Scaling, weight: Array, scales: Array, bias: NodeEntry | None, times: int = 1
) -> tuple[Array, Array, NodeEntry | None] | None:
    """The initial accumulators for a weight [outs, channels, taps down, taps across], the factor that dequantizes the sums, and
    the bias if it is added after dequantizing; None if a sum might overflow int32 or a scale under- or overflows.

    The scales and the bias are per output channel; the weight repeats these channels `times` times."""
    factor = np.multiply(scaling.scale, scales, dtype=np.float64)
    whole = _whole_bias(bias, factor, len(weight) // times)
    beginning = -scaling.unsigned_point * weight.sum((1, 2, 3), dtype=np.int64)
    beginning = beginning if whole is None else beginning + (np.tile(whole, times) if whole.size > 1 else whole)
    factor = np.tile(factor.reshape(-1), times) if factor.size > 1 else factor
    most = np.abs(beginning) + BYTE * _magnitudes(weight)
    if not is_lossless(scaling.scale, scales, factor) or not weight.size or most.max() > LARGEST_SUM:
        return None
    return beginning.astype(np.int32), factor.astype(np.float32), bias if whole is None else None


def _magnitudes(weight: Array) -> Array:
    """Sum of the absolute weights of each output, computed in pieces so that the weight is never widened as a whole."""
    step = max(1, PIECE // max(1, weight[:1].size))
    pieces = [np.abs(weight[i : i + step], dtype=np.int16).sum((1, 2, 3), dtype=np.int64) for i in range(0, len(weight), step)]
    return np.concatenate([np.zeros(0, np.int64), *pieces])


def _whole_bias(bias: NodeEntry | None, factor: Array, outs: int) -> Array | None:
    """The int32 bias of each output if the model stores it in units of the factor, else None; zero if there is no bias."""
    if bias is None:
        return np.zeros(1, np.int64)
    if not is_weight(bias):
        return None
    arrays = [None if entry is None else entry.node.value for entry in bias.node.inputs]
    array, scale, point = (*arrays, None)[:3]
    if array is None or scale is None or array.dtype != np.int32 or (point is not None and point.any()):
        return None
    is_for_each = array.size == outs and array.shape[-1:] == (outs,)
    if not (is_for_each or array.size == 1) or scale.size not in (1, array.size):
        return None
    alike = np.allclose(scale.reshape(-1), factor.reshape(-1), rtol=1e-5, atol=0.0)
    return array.reshape(-1).astype(np.int64) if alike else None


PRODUCTS = ops("matmul") | {"MatMulInteger"}


def whole_sums(graph: Graph, is_for_gpu: bool) -> tuple[Extent, ...]:
    """Conditions (each ≥ 0) under which the sums of global pools fit int32 and, on a GPU, which has kernels of dynamic depth, the
    sums of matrix products too. Empty if no value is quantized. Linear."""
    if all(node.op not in ops("quantizing", "integer_product") for node in graph.nodes):
        return ()
    pools = [sizes_of(node.reads[0].type) or () for node in graph.nodes if node.op == "GlobalAveragePool"]
    depths = [_depth(node) for node in graph.nodes if node.op in PRODUCTS and is_for_gpu]
    rooms = [*(LARGEST_SUM // BYTE - math.prod(sizes[2:]) for sizes in pools), *(DEEPEST - depth for depth in depths)]
    return tuple([room for room in dict.fromkeys(rooms) if isinstance(room, Extent)])


def _depth(node: Node) -> Size:
    """Number of products per sum; 0 if it is unknown."""
    sizes = sizes_of(node.reads[0].type) or (0,)
    return sizes[0 if node.attrs.get("transA", 0) else -1]
