"""Functions of one number that LLVM can put into vectors: polynomials instead of calls into the C library.

All for float32, within a few units of the last place of the true value; nan, infinities and overflow come out as they should.
Nothing here may be simplified as real numbers are (`x != x`), nor be a function that TVM computes lane by lane (`floor`,
`isnan`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from accelerators.tvm.library import part

Number = Any
"""A TensorIR expression of type float32."""


def const(value: float) -> Number:
    """A float32 constant."""
    return part("tirx").const(value, "float32")


def let(value: Number, body: Callable[[Number], Number]) -> Number:
    """An expression that uses the value several times and computes it once. (TVM treats expressions as trees: without names, a
    function of a function of a function has thousands of terms.)"""
    tirx = part("tirx")
    name = tirx.Var("t", dtype_of(value))
    return tirx.Let(name, value, body(name))


def dtype_of(value: Number) -> str:
    """The element type of an expression."""
    return str(value.ty.dtype if hasattr(value, "ty") else value.dtype)


def at_least(x: Number, low: Number | float) -> Number:
    """The larger one; nan where x is nan, which TVM's own maximum drops."""
    low = const(low) if isinstance(low, float) else low
    return part("tirx").Select(x < low, low, x)


def at_most(x: Number, high: Number | float) -> Number:
    """The smaller one; nan where x is nan."""
    high = const(high) if isinstance(high, float) else high
    return part("tirx").Select(x > high, high, x)


def exp(x: Number) -> Number:
    """2^n times a polynomial on the rest. For the largest numbers n stays 127 and the rest grows: what is too large becomes
    infinite of itself."""
    return let(x, lambda x: let(at_least(x, -88.0), lambda x: _power(x, 1.0, highest=127.0)))


def exp_within(x: Number, sign: float = 1.0) -> Number:
    """exp of x, or of -x, that is no number or at most 89, and at least -88 (where it is 0); from 88.4 on it is infinite."""
    return _power(x, sign)


def exp_of_negative(x: Number) -> Number:
    """exp where x is at most 89, or no number."""
    return let(x, lambda x: let(at_least(x, -88.0), exp_within))


def _power(x: Number, sign: float, highest: float | None = None) -> Number:
    """2^n times the polynomial on the rest of x. Adding 1.5·2^23 rounds and leaves n in the lowest bits, with 127 more the
    exponent of 2^n: 0 where n is -127, and infinite where it is 128."""
    tirx, biased = part("tirx"), 12582912.0 + 127.0

    def of_rest(shifted: Number) -> Number:
        n = shifted - const(biased)
        rest = x - n * const(sign * 0.693145751953125) - n * const(sign * 1.42860677e-6)
        power = tirx.reinterpret("float32", tirx.reinterpret("int32", shifted) << tirx.const(23, "int32"))
        return let(rest, lambda rest: _polynomial(rest, [c * sign**i for i, c in zip(range(6, -1, -1), _EXP)])) * power

    def bounded(shifted: Number) -> Number:
        return let(at_most(shifted, biased + highest), of_rest) if highest is not None else of_rest(shifted)

    return let(x * const(sign * 1.44269504088896341) + const(biased), bounded)


def tanh(x: Number) -> Number:
    """An odd rational function on the range where tanh is not yet ±1."""
    return _rational(x, _TANH, 7.90531110763549805)


def erf(x: Number) -> Number:
    """An odd rational function on the range where erf is not yet ±1."""
    return _rational(x, _ERF, 4.0)


def sigmoid(x: Number) -> Number:
    """1 / (1 + exp(-x)), which is 0 below -88.4, where the exponential is infinite."""
    return let(x, lambda x: let(at_least(at_most(x, 88.0), -89.0), lambda x: const(1.0) / (const(1.0) + exp_within(x, -1.0))))


def softplus(x: Number) -> Number:
    """log(1 + e^x) as max(x, 0) + log(1 + t) with t = e^-|x|; the logarithm by the series of artanh(t / (2 + t)), so that small
    values keep their digits."""

    def series(s: Number) -> Number:
        return s * let(s * s, lambda square: _polynomial(square, _LOG_OF_ONE_AND))

    def made(x: Number) -> Number:
        small = let(exp_of_negative(const(0.0) - part("te").max(x, const(0.0) - x)), lambda t: let(t / (t + const(2.0)), series))
        return at_least(x, 0.0) + small

    return let(x, made)


def mish(x: Number) -> Number:
    """x tanh(softplus(x)), which is x n / (n + 2) with n = e^x (e^x + 2); beyond 20 it is x."""

    def of_power(x: Number, power: Number) -> Number:
        return let(power * (power + const(2.0)), lambda n: x * (n / (n + const(2.0))))

    return let(x, lambda x: let(exp_of_negative(at_most(x, 20.0)), lambda power: of_power(x, power)))


def _rational(x: Number, coefficients: tuple[Sequence[float], Sequence[float]], limit: float) -> Number:
    def ratio(clamped: Number) -> Number:
        over, under = coefficients
        return clamped * let(clamped * clamped, lambda square: _polynomial(square, over) / _polynomial(square, under))

    return let(
        x, lambda x: part("tirx").Select(x <= const(math.inf), let(at_least(at_most(x, limit), -limit), ratio), x)
    )


def _polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """Horner's rule, the highest coefficient first."""
    made = const(coefficients[0])
    for coefficient in coefficients[1:]:
        made = made * x + const(coefficient)
    return made


_LOG_OF_ONE_AND = (2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0)
_EXP = (
    1.5515603590756655e-3, 8.363666944205761e-3, 4.163762554526329e-2, 1.666654348373413e-1, 5.000011324882507e-1, 1.0, 1.0,
)  # fmt: skip
_TANH = (
    (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
     6.37261928875436e-04, 4.89352455891786e-03),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)  # fmt: skip
_ERF = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
     -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02),
)  # fmt: skip
