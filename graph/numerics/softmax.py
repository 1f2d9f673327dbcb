"""Softmax, LogSoftmax and Hardmax. Below opset 13 all axes from ``axis`` on are flattened into one.

Classification losses: negative log-likelihoods, per position or reduced. ONNX's reference takes the logarithm of a softmax that
has underflowed to zero if logits lie far apart, and reads other classes, or none, for a label out of range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from partita.graph.numerics.registry import EVERYWHERE, differs, numerics, slow


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


@numerics("NegativeLogLikelihoodLoss", widen=True, why=differs("where a label names no class"))
def negative_log_likelihood(
    x: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None, *, reduction: str = "mean",
    ignore_index: int | None = None,
) -> np.ndarray:
    """-x at the label of each position, times the weight of its class; a mean is divided by the sum of the weights."""
    ignored = np.zeros(labels.shape, bool) if ignore_index is None else labels == ignore_index
    wrong = labels[~ignored & ((labels < 0) | (labels >= x.shape[1]))]
    if wrong.size:
        raise ValueError(f"the label {wrong[0]} is none of {x.shape[1]} classes")
    chosen = np.where(ignored, 0, labels)
    weights = np.where(ignored, 0, 1 if weight is None else weight[chosen]).astype(x.dtype)
    loss = np.where(ignored, 0, -np.take_along_axis(x, chosen[:, None], 1)[:, 0]).astype(x.dtype) * weights
    if reduction == "none":
        return loss
    return loss.sum() / weights.sum() if reduction == "mean" else loss.sum()


@numerics("SoftmaxCrossEntropyLoss", widen=True, why=differs("where logits lie far apart"))
def softmax_cross_entropy(
    x: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None, *, reduction: str, ignore_index: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The loss of the log-softmax over the classes, and that log-softmax."""
    likely = log_softmax(x, axis=1)
    return negative_log_likelihood(likely, labels, weight, reduction=reduction, ignore_index=ignore_index), likely
