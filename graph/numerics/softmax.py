"""Softmax, LogSoftmax and Hardmax. Below opset 13 all axes from ``axis`` on are flattened into one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .registry import EVERYWHERE, differs, numerics, slow


@numerics("Softmax", since=13, widen=True, why=slow(EVERYWHERE))
def softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """exp(x) / sum(exp(x)) along one axis."""
    if not x.size:
        return x
    y = np.exp(x - x.max(axis=axis, keepdims=True))
    y /= y.sum(axis=axis, keepdims=True)
    return y


@numerics("LogSoftmax", since=13, widen=True, why=differs("where logits lie far apart"))
def log_softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """The logarithm of `softmax`, without computing it first."""
    if not x.size:
        return x
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def hardmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """One at the first maximum along the axis, zero elsewhere."""
    y = np.zeros_like(x)
    if x.size:
        np.put_along_axis(y, np.expand_dims(x.argmax(axis=axis), axis), 1, axis=axis)
    return y


_FLATTENED = "because it does not make one axis of all from `axis` on, as these opsets do"


def _flattened(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The function on a matrix: the axes before ``axis`` are its rows, the others its columns."""

    def over_matrix(x: np.ndarray, *, axis: int) -> np.ndarray:
        rows = int(np.prod(x.shape[: axis % x.ndim if x.ndim else 0], dtype=int))
        return function(x.reshape(rows, -1) if x.size else x, axis=-1).reshape(x.shape)

    return over_matrix


numerics("Softmax", until=12, widen=True, why=differs(_FLATTENED))(_flattened(softmax))
numerics("LogSoftmax", until=12, widen=True, why=differs(_FLATTENED))(_flattened(log_softmax))
numerics("Hardmax", until=12, why=differs(_FLATTENED))(_flattened(hardmax))
