"""What the sums of products of bytes begin with, and what makes numbers of them."""

from __future__ import annotations

import numpy as np

from partita.accelerators.tvm.bodies.quantized import is_weight
from partita.accelerators.tvm.layouts.scales import BYTE, LARGEST_SUM, Scaling, is_lossless
from partita.graph.node import NodeEntry
from partita.graph.types import Array

PIECE = 1 << 20
"""About so many weights are looked at together."""


def sums_of(
    scaling: Scaling, weight: Array, scales: Array, bias: NodeEntry | None, times: int = 1
) -> tuple[Array, Array, NodeEntry | None] | None:
    """What the sums of products by a weight [outs, channels, taps down, taps across] begin with, the factor that makes numbers of
    them, and the bias if it is added to the numbers; None if 32 bits might not hold a sum, or a scale is lost.

    The scales and the bias are those of the outputs, which the weight has so many times."""
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
    """The sum of each output's weights without their signs, of some outputs at a time: the bytes are never all there as words."""
    step = max(1, PIECE // max(1, weight[:1].size))
    pieces = [np.abs(weight[i : i + step], dtype=np.int16).sum((1, 2, 3), dtype=np.int64) for i in range(0, len(weight), step)]
    return np.concatenate([np.zeros(0, np.int64), *pieces])


def _whole_bias(bias: NodeEntry | None, factor: Array, outs: int) -> Array | None:
    """The bias of each output in units of the factor, if the model gives it so; zeros if there is none."""
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
