"""Ops along axes: Reduce*, ArgMax, ArgMin, TopK, CumSum, CumProd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from partita.graph.numerics.registry import EVERYWHERE, HALVES, differs, fails, numerics, slow

Reduction = Callable[..., np.ndarray]


def _sum(x: np.ndarray, **over: Any) -> np.ndarray:
    return x.sum(dtype=x.dtype, **over)


def _mean(x: np.ndarray, **over: Any) -> np.ndarray:
    if x.dtype.kind == "f":
        return x.mean(**over)
    count = x.size // max(x.sum(**over).size, 1)
    return np.trunc(x.sum(dtype=np.float64, **over) / count).astype(x.dtype)


def _prod(x: np.ndarray, **over: Any) -> np.ndarray:
    return x.prod(dtype=x.dtype, **over)


def _l1(x: np.ndarray, **over: Any) -> np.ndarray:
    return _sum(np.abs(x), **over)


def _l2(x: np.ndarray, **over: Any) -> np.ndarray:
    return np.sqrt(_sum(np.square(x), **over)).astype(x.dtype)


def _sum_square(x: np.ndarray, **over: Any) -> np.ndarray:
    return _sum(np.square(x), **over)


def _log_sum(x: np.ndarray, **over: Any) -> np.ndarray:
    return np.log(_sum(x, **over)).astype(x.dtype)


def _log_sum_exp(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    peak = x.max(axis=axis, keepdims=True, initial=_smallest(x.dtype)).astype(np.float64)
    finite = np.where(np.isfinite(peak), peak, 0)
    y = np.log(np.exp(x - finite).sum(axis=axis, keepdims=True)) + finite
    return (y if keepdims else y.squeeze(axis)).astype(x.dtype)


def _max(x: np.ndarray, **over: Any) -> np.ndarray:
    return x.max(**over) if x.size else x.max(initial=_smallest(x.dtype), **over)


def _min(x: np.ndarray, **over: Any) -> np.ndarray:
    return x.min(**over) if x.size else x.min(initial=_largest(x.dtype), **over)


def _smallest(dtype: np.dtype) -> Any:
    return False if dtype.kind == "b" else -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _largest(dtype: np.dtype) -> Any:
    return True if dtype.kind == "b" else np.inf if dtype.kind == "f" else np.iinfo(dtype).max


_REDUCTIONS: dict[str, tuple[Reduction, int]] = {
    # The function, and the first opset whose axes are an input.
    "ReduceSum": (_sum, 13), "ReduceMean": (_mean, 18), "ReduceProd": (_prod, 18), "ReduceMax": (_max, 18),
    "ReduceMin": (_min, 18), "ReduceL1": (_l1, 18), "ReduceL2": (_l2, 18), "ReduceSumSquare": (_sum_square, 18),
    "ReduceLogSum": (_log_sum, 18), "ReduceLogSumExp": (_log_sum_exp, 18),
}


_WHY = {
    **dict.fromkeys(("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare"), differs(HALVES)),
    "ReduceLogSum": fails("for integers"),
    "ReduceLogSumExp": fails("for an array without dimensions"),
}


def _register(op: str, function: Reduction, by_input: int) -> None:
    why = _WHY.get(op, slow(EVERYWHERE))

    @numerics(op, until=by_input - 1, widen=True, why=why)
    def axes_attribute(x: np.ndarray, *, axes: Sequence[int] | None = None, keepdims: int) -> np.ndarray:
        return np.asarray(function(x, axis=tuple(axes or range(x.ndim)), keepdims=bool(keepdims)))

    @numerics(op, since=by_input, widen=True, why=why)
    def axes_input(
        x: np.ndarray, axes: np.ndarray | None = None, *, keepdims: int, noop_with_empty_axes: int
    ) -> np.ndarray:
        chosen = () if axes is None else tuple(axes.tolist())
        if not chosen and not noop_with_empty_axes:
            chosen = tuple(range(x.ndim))
        return np.asarray(function(x, axis=chosen, keepdims=bool(keepdims)))


for _op, (_function, _by_input) in _REDUCTIONS.items():
    _register(_op, _function, _by_input)


@numerics("ArgMax", "ArgMin", wants=("op",), why=slow(EVERYWHERE))
def arg_extreme(x: np.ndarray, *, op: str, axis: int, keepdims: int, select_last_index: int = 0) -> np.ndarray:
    """The index of the largest or smallest element; of ties the first, or the last with
    ``select_last_index``."""
    find = np.argmax if op == "ArgMax" else np.argmin
    y = find(np.flip(x, axis) if select_last_index else x, axis=axis)
    if select_last_index:
        y = x.shape[axis] - 1 - y
    return np.asarray(np.expand_dims(y, axis) if keepdims else y, np.int64)


@numerics("TopK", since=10, why=slow(EVERYWHERE))
def top_k(
    x: np.ndarray, k: np.ndarray, *, axis: int, largest: int = 1, sorted: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest or smallest elements along an axis, sorted, ties by position; and their indices."""
    if not 0 <= k.item() <= x.shape[axis]:
        raise ValueError(f"there are no {k.item()} numbers to choose among {x.shape[axis]}")
    if largest:
        # A stable sort of the reversed array, reversed again, keeps ties in order.
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    chosen = np.take(order, np.arange(k.item()), axis=axis)
    return np.take_along_axis(x, chosen, axis=axis), chosen.astype(np.int64)


@numerics("CumSum", widen=True, why=differs(HALVES))
def cumulative_sum(x: np.ndarray, axis: np.ndarray, *, exclusive: int, reverse: int) -> np.ndarray:
    """Running sums along an axis, from either end, with or without the element itself."""
    return _running(np.add, x, int(axis.item()), exclusive, reverse)


@numerics("CumProd", widen=True, why=differs(HALVES))
def cumulative_product(x: np.ndarray, axis: np.ndarray, *, exclusive: int, reverse: int) -> np.ndarray:
    """Running products along an axis, from either end, with or without the element itself."""
    return _running(np.multiply, x, int(axis.item()), exclusive, reverse)


def _running(combine: np.ufunc, x: np.ndarray, axis: int, exclusive: int, reverse: int) -> np.ndarray:
    if reverse:
        x = np.flip(x, axis)
    y = combine.accumulate(x, axis=axis, dtype=x.dtype)
    if exclusive:
        y = _shifted(y, axis, combine.identity)
    return np.flip(y, axis) if reverse else y


def _shifted(y: np.ndarray, axis: int, first: Any) -> np.ndarray:
    """Shifted by one along the axis, with `first` in front."""
    y = np.moveaxis(y, axis, 0)
    return np.moveaxis(np.concatenate([np.full_like(y[:1], first), y[:-1]]), 0, axis)
