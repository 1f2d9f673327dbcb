"""The losses of classification: negative log-likelihoods, per position or reduced.

ONNX's reference takes the logarithm of a softmax that has underflowed to zero if logits lie far apart, and reads other
classes, or none, for a label out of range."""

from __future__ import annotations

import numpy as np

from .registry import differs, numerics
from .softmax import log_softmax


@numerics("NegativeLogLikelihoodLoss", widen=True, why=differs("where a label names no class"))
def negative_log_likelihood(
    x: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    reduction: str = "mean",
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
    x: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    reduction: str,
    ignore_index: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The loss of the log-softmax over the classes, and that log-softmax."""
    likely = log_softmax(x, axis=1)
    return negative_log_likelihood(likely, labels, weight, reduction=reduction, ignore_index=ignore_index), likely
