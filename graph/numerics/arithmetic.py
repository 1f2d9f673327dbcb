"""Element-wise ops with several inputs: arithmetic, comparison, logic.

Below opset 7 inputs broadcast only if ``broadcast`` is set, and ``axis`` is the position of the second input's
dimensions among the first one's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from .registry import EVERYWHERE, HALVES, differs, fails, numerics, slow

Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotient; integer division truncates, as in C."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return quotient + inexact.astype(a.dtype)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a to the power of b in the type of a; the exponent may have another type."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu" and np.any(b < 0):
        return np.power(a.astype(np.float64), b).astype(a.dtype)
    if a.dtype == np.uint64 and b.dtype.kind == "i":
        b = b.astype(np.uint64)  # numpy's only common type is float64
    return np.power(a, b).astype(a.dtype)


_ARITHMETIC: dict[str, Binary] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": divide, "Pow": power,
}
_LOGIC: dict[str, Binary] = {
    "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    "Equal": np.equal, "Greater": np.greater, "Less": np.less,
}
"""ONNX's evaluator serves these from opset 7 on."""


def _register_broadcast(op: str, function: Binary) -> None:
    why = fails("for integers to the power of negative ones") if op == "Pow" else slow(EVERYWHERE)

    @numerics(op, since=7, widen=True, why=why)
    def by_numpy(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(function(a, b))


def _register_by_axis(op: str, function: Binary) -> None:
    @numerics(op, until=6, widen=True, why=fails("where `axis` says which dimensions a smaller operand stands for"))
    def by_axis(a: np.ndarray, b: np.ndarray, *, broadcast: int, axis: int | None = None) -> np.ndarray:
        if broadcast and axis is not None and b.ndim:
            b = b.reshape(*b.shape, *(1,) * (a.ndim - axis % a.ndim - b.ndim))
        return np.asarray(function(a, b))


for _op, _function in _ARITHMETIC.items():
    _register_broadcast(_op, _function)
for _op, _function in (_ARITHMETIC | _LOGIC).items():
    _register_by_axis(_op, _function)


@numerics("GreaterOrEqual", why=slow(EVERYWHERE))
def greater_or_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a >= b."""
    return np.asarray(a >= b)


@numerics("LessOrEqual", why=slow(EVERYWHERE))
def less_or_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a <= b."""
    return np.asarray(a <= b)


@numerics("Max", why=slow(EVERYWHERE))
def maximum(*xs: np.ndarray) -> np.ndarray:
    """The largest of any number of inputs."""
    return reduce(np.maximum, xs)


@numerics("Min", why=slow(EVERYWHERE))
def minimum(*xs: np.ndarray) -> np.ndarray:
    """The smallest of any number of inputs."""
    return reduce(np.minimum, xs)


@numerics("Sum", widen=True, why=differs(HALVES))
def total(*xs: np.ndarray) -> np.ndarray:
    """The sum of any number of inputs."""
    return reduce(np.add, xs)


@numerics("Mean", widen=True, why=fails("where a later input has more dimensions than the first"))
def mean(*xs: np.ndarray) -> np.ndarray:
    """The mean of any number of inputs."""
    return (reduce(np.add, xs) / len(xs)).astype(xs[0].dtype)


@numerics("Mod", why=slow(EVERYWHERE))
def modulo(a: np.ndarray, b: np.ndarray, *, fmod: int) -> np.ndarray:
    """The remainder, with the sign of the divisor, or with ``fmod`` that of the dividend."""
    return np.fmod(a, b) if fmod else np.mod(a, b)


@numerics("Where", why=slow(EVERYWHERE))
def where(condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Element-wise choice."""
    return np.where(condition, a, b)
