"""Activation functions."""

from __future__ import annotations

import numpy as np

from partita.graph.numerics.arithmetic import error_function
from partita.graph.numerics.registry import EVERYWHERE, absent, differs, fails, numerics, slow


@numerics("Relu", why=slow(EVERYWHERE))
def relu(x: np.ndarray) -> np.ndarray:
    """max(x, 0)."""
    return np.maximum(x, x.dtype.type(0))


@numerics("LeakyRelu", widen=True, why=slow(EVERYWHERE))
def leaky_relu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    """x, or alpha x where x is negative."""
    return np.where(x < 0, x.dtype.type(alpha) * x, x)


@numerics("PRelu", since=7, widen=True, why=differs("where a slope is infinite or NaN: it multiplies numbers above zero by it"))
def prelu(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """x, or slope x where x is negative."""
    return np.where(x < 0, slope * x, x)


@numerics("Elu", widen=True, why=slow(EVERYWHERE))
def elu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    """x, or alpha (exp(x) - 1) where x is negative."""
    return np.where(x < 0, x.dtype.type(alpha) * np.expm1(np.minimum(x, 0)), x)


def thresholded_relu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    """x above alpha, else zero."""
    return np.where(x > alpha, x, x.dtype.type(0))


@numerics("Sigmoid", widen=True, why=slow(EVERYWHERE))
def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow on either side."""
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), decay) / (1 + decay)


@numerics("HardSigmoid", widen=True, why=slow(EVERYWHERE))
def hard_sigmoid(x: np.ndarray, *, alpha: float, beta: float) -> np.ndarray:
    """alpha x + beta, clipped to 0..1."""
    kind = x.dtype.type
    return np.clip(kind(alpha) * x + kind(beta), kind(0), kind(1))


@numerics("HardSwish", widen=True, why=absent("below opset 14 and above"))
def hard_swish(x: np.ndarray) -> np.ndarray:
    """x times its hard sigmoid."""
    return x * hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@numerics("Mish", widen=True, why=absent())
def mish(x: np.ndarray) -> np.ndarray:
    """x tanh(softplus(x))."""
    return x * np.tanh(softplus(x))


@numerics("Softplus", widen=True, why=slow(EVERYWHERE))
def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x))."""
    return np.logaddexp(x, x.dtype.type(0))


@numerics("Softsign", widen=True, why=fails("for an array without dimensions"))
def softsign(x: np.ndarray) -> np.ndarray:
    """x / (1 + |x|)."""
    return x / (1 + np.abs(x))


@numerics("Gelu", widen=True, why=absent())
def gelu(x: np.ndarray, *, approximate: str) -> np.ndarray:
    """x times the normal distribution's cumulative function, or its approximation by tanh."""
    kind = x.dtype.type
    if approximate == "tanh":
        return kind(0.5) * x * (1 + np.tanh(kind(np.sqrt(2 / np.pi)) * (x + kind(0.044715) * x**3)))
    return (0.5 * x * (1 + error_function(x / np.sqrt(2.0)))).astype(x.dtype)


@numerics("Clip", until=10, why=slow(EVERYWHERE))
def clip_to_attributes(x: np.ndarray, *, min: float | None = None, max: float | None = None) -> np.ndarray:
    """Clip below opset 11, where the bounds are attributes."""
    bounds = (None if bound is None else np.asarray(bound).astype(x.dtype) for bound in (min, max))
    return clip(x, *bounds)


@numerics("Clip", since=11, why=differs("in the element type of what is clipped below alone in float16"))
def clip(x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
    """Clipped to two bounds, of which the upper one takes precedence."""
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)
