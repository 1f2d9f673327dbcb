"""Ops that may be computed as the difference of parts which are much larger than the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from partita.graph.node import Node

Wide = np.ndarray[Any, np.dtype[np.float64]]


def largest_term(node: Node, read: Sequence[Any]) -> float:
    """The largest of the parts; 0 for an op that has none, or whose parts are not finite."""
    measure = _TERMS.get(node.op or "")
    if measure is None:
        return 0.0
    with np.errstate(all="ignore"):
        wide = [value.astype(np.float64) for value in read if isinstance(value, np.ndarray)]
        largest = measure(node, [np.where(np.isfinite(value), value, 0.0) for value in wide])
    return largest if np.isfinite(largest) else 0.0


def _tame(values: Wide) -> Wide:
    """The numbers whose squares are numbers too; what a norm makes of others is no matter of rounding."""
    return np.where(np.abs(values) < np.sqrt(np.finfo(np.float32).max), values, 0.0)


def _weighted(node: Node, read: list[Wide]) -> float:
    """Numbers with weights that are computed, whose errors are parts of one."""
    return _largest(node, read) * float(np.abs(read[1]).max(initial=0.0))


def _largest(node: Node, read: list[Wide]) -> float:
    return float(np.abs(read[0]).max(initial=0.0))


def _sums_of_waves(node: Node, read: list[Wide]) -> float:
    """Sums of numbers times sines, whose errors are parts of one."""
    return _largest(node, read) * max(read[0].shape, default=1)


def _instance_norm(node: Node, read: list[Wide]) -> float:
    """Scaled and moved at once: x * scale / deviation and mean * scale / deviation."""
    x = _tame(read[0])
    return _scaled(node, x, read[1], x.var(axis=tuple(range(2, x.ndim))))


def _group_norm(node: Node, read: list[Wide]) -> float:
    x = _tame(read[0])
    return _scaled(node, x, read[1], x.reshape(x.shape[0], node.attrs["num_groups"], -1).var(axis=-1))


def _batch_norm(node: Node, read: list[Wide]) -> float:
    return max(_scaled(node, _tame(x), read[1], read[4]) for x in (read[0], read[3]))


def _scaled(node: Node, x: Wide, scale: Wide, variance: Wide) -> float:
    deviation = np.sqrt(variance.min(initial=np.inf) + node.attrs.get("epsilon", 1e-5))
    return float(np.abs(x).max(initial=0.0) * np.abs(scale).max(initial=0.0) / deviation)


_TERMS: dict[str, Callable[[Node, list[Wide]], float]] = {
    "BatchNormalization": _batch_norm,
    "DFT": _sums_of_waves,
    "DeformConv": _weighted,
    "GridSample": _largest,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LogSoftmax": _largest,
    "Resize": _largest,
    "RoiAlign": _largest,
    "STFT": _sums_of_waves,
    "SoftmaxCrossEntropyLoss": _largest,
}
