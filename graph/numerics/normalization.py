"""Normalization: batch, instance, layer, group, local response, and the norms of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from partita.graph.numerics.casts import cast, is_half
from partita.graph.numerics.registry import HALVES, absent, differs, fails, numerics, slow


@numerics("BatchNormalization", until=8, wants=("n_outputs",), why=fails("with one output, which it returns in a wrong form"))
def spatial_batch_normalization(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, var: np.ndarray, *, epsilon: float, momentum: float,
    n_outputs: int, spatial: int, is_test: int = 0,
) -> tuple[np.ndarray, ...]:
    """Opsets 1 to 8: without ``spatial`` every position has its own statistics; a single output means inference."""
    training = n_outputs > 1 and not is_test
    return _batch_normalization(x, scale, bias, mean, var, epsilon, momentum, training, bool(spatial))


@numerics("BatchNormalization", since=9, until=13, wants=("n_outputs",), why=differs("because it uses the momentum in inference"))
def batch_normalization_by_outputs(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, var: np.ndarray, *, epsilon: float, momentum: float,
    n_outputs: int,
) -> tuple[np.ndarray, ...]:
    """Opsets 9 to 13: outputs for the statistics mean training."""
    return _batch_normalization(x, scale, bias, mean, var, epsilon, momentum, n_outputs > 1, True)


@numerics("BatchNormalization", since=14, why=slow("because it runs NumPy's functions on arrays of all sizes that it makes anew"))
def batch_normalization(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, var: np.ndarray, *, epsilon: float, momentum: float,
    training_mode: int,
) -> tuple[np.ndarray, ...]:
    """From opset 14: training is an attribute; the running statistics are the other outputs."""
    return _batch_normalization(x, scale, bias, mean, var, epsilon, momentum, bool(training_mode), True)


def _batch_normalization(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, var: np.ndarray, epsilon: float, momentum: float,
    training: bool, spatial: bool,
) -> tuple[np.ndarray, ...]:
    """Y, and in training the running and the batch mean and variance."""
    column = (1, x.shape[1], *(1,) * (x.ndim - 2)) if spatial and x.ndim > 1 else (1, *x.shape[1:])
    wide = _wide(x)
    used_mean, used_var = _wide(mean), _wide(var)
    if training:
        axes = (0, *range(2, x.ndim)) if spatial else (0,)
        used_mean, used_var = wide.mean(axis=axes), wide.var(axis=axes)
    y = wide - used_mean.reshape(column)
    y *= (_wide(scale) / np.sqrt(used_var + wide.dtype.type(epsilon))).reshape(column)
    y += _wide(bias).reshape(column)
    y = y.astype(x.dtype, copy=False)
    if not training:
        return (y,)
    running = (
        _wide(mean) * momentum + used_mean.reshape(mean.shape) * (1 - momentum),
        _wide(var) * momentum + used_var.reshape(var.shape) * (1 - momentum),
    )
    return (y, *(s.astype(mean.dtype) for s in (*running, used_mean, used_var)))


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) if is_half(x) else x


@numerics("InstanceNormalization", widen=True, why=differs(HALVES))
def instance_normalization(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, epsilon: float) -> np.ndarray:
    """Normalizes each channel of each sample to mean 0 and variance 1, then scales."""
    column = (1, x.shape[1], *(1,) * (x.ndim - 2))
    return standardized(x, tuple(range(2, x.ndim)), epsilon) * scale.reshape(column) + bias.reshape(column)


@numerics("GroupNormalization", until=20, widen=True, why=absent())
def group_normalization_by_group(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, num_groups: int, epsilon: float
) -> np.ndarray:
    """Opset 18: one scale and bias per group."""
    per_channel = x.shape[1] // num_groups
    return group_normalization(
        x, scale.repeat(per_channel), bias.repeat(per_channel), num_groups=num_groups, epsilon=epsilon
    )


@numerics("GroupNormalization", since=21, widen=True, why=absent())
def group_normalization(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, num_groups: int, epsilon: float, stash_type: int = 1,
) -> np.ndarray:
    """From opset 21: one scale and bias per channel."""
    each = math.prod(x.shape[1:]) // num_groups
    groups = standardized(x.reshape(x.shape[0], num_groups, each), (2,), epsilon)
    column = (1, x.shape[1], *(1,) * (x.ndim - 2))
    return groups.reshape(x.shape) * scale.reshape(column) + bias.reshape(column)


@numerics("LayerNormalization", why=differs("in the element type of mean and deviation in float16"))
def layer_normalization(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None, *, axis: int, epsilon: float, stash_type: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Y, mean, 1 / deviation over the axes from ``axis`` on; the statistics have the stash type, or float32 if it is 0."""
    wide = _wide(x)
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = wide.mean(axis=axes, keepdims=True)
    centred = wide - mean
    inverse = 1 / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + wide.dtype.type(epsilon))
    y = (centred * inverse).astype(x.dtype) * scale
    if bias is not None:
        y = y + bias
    return y.astype(x.dtype, copy=False), cast(mean, to=stash_type or 1), cast(inverse, to=stash_type or 1)


@numerics("RMSNormalization", why=differs(HALVES))
def rms_normalization(x: np.ndarray, scale: np.ndarray, *, axis: int, epsilon: float, stash_type: int) -> np.ndarray:
    """x divided by its root mean square over the axes from ``axis`` on."""
    wide = _wide(x)
    axes = tuple(range(axis % x.ndim, x.ndim))
    normal = wide / np.sqrt(np.square(wide).mean(axis=axes, keepdims=True) + wide.dtype.type(epsilon))
    return (normal.astype(x.dtype) * scale).astype(x.dtype, copy=False)


@numerics("MeanVarianceNormalization", widen=True, why=absent())
def mean_variance_normalization(x: np.ndarray, *, axes: Sequence[int]) -> np.ndarray:
    """Normalizes to mean 0 and variance 1 over the axes (all by default); the specification adds 1e-9 to the deviation."""
    along = tuple(axes) or None
    deviation = x.std(axis=along, keepdims=True) + x.dtype.type(1e-9)
    return (x - x.mean(axis=along, keepdims=True)) / deviation


@numerics("LRN", widen=True, why=differs("where the window is even, which it shifts the other way"))
def local_response_normalization(x: np.ndarray, *, alpha: float, beta: float, bias: float, size: int) -> np.ndarray:
    """Divides by a power of the mean square over the neighbouring channels."""
    before = (size - 1) // 2
    around = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    squares = np.pad(np.square(x), around)
    total = np.zeros_like(x)
    for shift in range(size):
        total += squares[:, shift : shift + x.shape[1]]
    kind = x.dtype.type
    return x / (kind(bias) + kind(alpha / size) * total) ** kind(beta)


@numerics("LpNormalization", widen=True, why=differs("in bfloat16, or for a norm of zero"))
def lp_normalization(x: np.ndarray, *, axis: int, p: int) -> np.ndarray:
    """Divides by the 1- or 2-norm along an axis; zero vectors stay zero."""
    norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True).astype(x.dtype)
    return np.where(norm == 0, x.dtype.type(0), x / np.where(norm == 0, 1, norm)).astype(x.dtype)


def standardized(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    """x normalized to mean 0 and variance 1 over the axes."""
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + x.dtype.type(epsilon))
