"""Element-wise ops with several inputs: arithmetic, comparison, logic.

Below opset 7 inputs broadcast only if ``broadcast`` is set, and ``axis`` is the position of the second input's
dimensions among the first one's."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from partita.graph.numerics.registry import EVERYWHERE, HALVES, differs, fails, numerics, slow

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


_ARITHMETIC: dict[str, Binary] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": divide, "Pow": power}
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


_UFUNCS = {
    "Abs": np.abs, "Ceil": np.ceil, "Cos": np.cos, "Exp": np.exp,
    "Floor": np.floor, "Log": np.log, "Neg": np.negative, "Round": np.rint, "Sign": np.sign, "Sin": np.sin,
    "Sqrt": np.sqrt, "Tanh": np.tanh,
}


def _register(op: str, ufunc: np.ufunc) -> None:
    @numerics(op, widen=True, why=slow(EVERYWHERE))
    def apply(x: np.ndarray) -> np.ndarray:
        return np.asarray(ufunc(x))


for _name, _ufunc in _UFUNCS.items():
    _register(_name, _ufunc)


@numerics("Reciprocal", widen=True, why=slow(EVERYWHERE))
def reciprocal(x: np.ndarray) -> np.ndarray:
    """1 / x in the type of x."""
    return (x.dtype.type(1) / x).astype(x.dtype)


# W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969), 631-637:
# numerator and denominator, highest power last, on |x| <= 0.46875, |x| <= 4, and beyond in 1 / x².
_NEAR = (
    (3.20937758913846947e03, 3.77485237685302021e02, 1.13864154151050156e02, 3.16112374387056560e00,
     1.85777706184603153e-1),
    (2.84423683343917062e03, 1.28261652607737228e03, 2.44024637934444173e02, 2.36012909523441209e01, 1.0),
)
_MIDDLE = (
    (1.23033935479799725e03, 2.05107837782607147e03, 1.71204761263407058e03, 8.81952221241769090e02,
     2.98635138197400131e02, 6.61191906371416295e01, 8.88314979438837594e00, 5.64188496988670089e-1,
     2.15311535474403846e-8),
    (1.23033935480374942e03, 3.43936767414372164e03, 4.36261909014324716e03, 3.29079923573345963e03,
     1.62138957456669019e03, 5.37181101862009858e02, 1.17693950891312499e02, 1.57449261107098347e01, 1.0),
)
_FAR = (
    (6.58749161529837803e-4, 1.60837851487422766e-2, 1.25781726111229246e-1, 3.60344899949804439e-1,
     3.05326634961232344e-1, 1.63153871373020978e-2),
    (2.33520497626869185e-3, 6.05183413124413191e-2, 5.27905102951428412e-1, 1.87295284992346047e00,
     2.56852019228982242e00, 1.0),
)


def error_function(x: np.ndarray) -> np.ndarray:
    """erf of a float64 array, by Cody's three rational approximations."""
    size = np.abs(x)
    y = np.array(np.sign(x) * 1.0)
    near, far = size <= 0.46875, (size > 4) & (size < 6)
    middle = ~near & (size <= 4)
    t = x[near]
    y[near] = t * _ratio(_NEAR, t * t)
    t = size[middle]
    y[middle] *= 1 - np.exp(-t * t) * _ratio(_MIDDLE, t)
    t = size[far]
    inverse = 1 / (t * t)
    y[far] *= 1 - np.exp(-t * t) / t * (1 / np.sqrt(np.pi) - inverse * _ratio(_FAR, inverse))
    return np.where(np.isnan(x), x, y)


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], t: np.ndarray) -> np.ndarray:
    above, below = (np.polynomial.polynomial.polyval(t, np.array(c)) for c in coefficients)
    return above / below
