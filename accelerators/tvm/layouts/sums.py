"""Initial values of the accumulators of byte products, and the factors that dequantize the sums."""

from __future__ import annotations

import numpy as np

from partita.accelerators.tvm.bodies.quantized import is_weight
from partita.accelerators.tvm.layouts.scales import BYTE, LARGEST_SUM, Scaling, is_lossless
from partita.graph.node import NodeEntry
from partita.graph.types import Array

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
