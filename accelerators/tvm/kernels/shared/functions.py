"""Functions of one variable that LLVM can vectorize: polynomials instead of calls into the C library.

All are for float32, within a few units in the last place; NaN, infinities and overflow come out as they should. Nothing here may
be rewritten as if floats were real numbers, or be a function that TVM computes lane by lane."""

from __future__ import annotations

import math
from collections.abc import Sequence

from partita.accelerators.tvm.kernels.language import Operand, Value, constant, float32, int32, maximum, named, select


def at_least(x: Value, low: Operand) -> Value:
    """The larger of both; NaN if x is NaN, which TVM's own maximum drops."""
    return select(x < low, _like(x, low), x)


def at_most(x: Value, high: Operand) -> Value:
    """The smaller of both; NaN if x is NaN."""
    return select(x > high, _like(x, high), x)


def larger(best: Value, x: Value) -> Value:
    """The larger of two numbers; NaN wins."""
    return _winner(best, x, best < x)


def smaller(best: Value, x: Value) -> Value:
    """The smaller of two numbers; NaN wins."""
    return _winner(best, x, best > x)


def _winner(best: Value, x: Value, wins: Value) -> Value:
    winner = select(wins, x, best)
    return winner if x.type.element.is_whole else select(x <= math.inf, winner, x)


def _like(x: Value, other: Operand) -> Value:
    return other if isinstance(other, Value) else constant(other, x.type.element, x.type.lanes)


def magnitude(x: Value) -> Value:
    """The absolute value."""
    return maximum(x, 0.0 - x)


def exp(x: Value) -> Value:
    """2^n times a polynomial on the rest. For the largest arguments n stays 127 and the rest grows, so that the result overflows
    to infinity by itself."""
    return named(x, lambda x: named(at_least(x, -88.0), lambda x: _power(x, 1.0, highest=127.0)))


def exp_within(x: Value, sign: float = 1.0) -> Value:
    """exp(sign · x), where sign · x is NaN or between -88, where exp is 0, and 89; from 88.4 on it is infinite."""
    return _power(x, sign)


def exp_of_negative(x: Value) -> Value:
    """exp of x ≤ 89, or NaN."""
    return named(x, lambda x: named(at_least(x, -88.0), exp_within))


def _power(x: Value, sign: float, highest: float | None = None) -> Value:
    """2^n times the polynomial on the rest of x. Adding 1.5·2^23 + 127 rounds, and leaves the biased exponent of 2^n in the
    lowest bits: the result is 0 for n = -127 and infinite for n = 128."""
    biased = 12582912.0 + 127.0

    def of_rest(shifted: Value) -> Value:
        n = shifted - biased
        rest = x - n * (sign * 0.693145751953125) - n * (sign * 1.42860677e-6)
        power = (shifted.bits_as(int32) << 23).bits_as(float32)
        return named(rest, lambda rest: _polynomial(rest, [c * sign**i for i, c in zip(range(6, -1, -1), _EXP)])) * power

    def bounded(shifted: Value) -> Value:
        return named(at_most(shifted, biased + highest), of_rest) if highest is not None else of_rest(shifted)

    return named(x * (sign * 1.44269504088896341) + biased, bounded)


def tanh(x: Value) -> Value:
    """An odd rational function on the range where tanh is not yet ±1."""
    return _rational(x, _TANH, 7.90531110763549805)


def erf(x: Value) -> Value:
    """An odd rational function on the range where erf is not yet ±1."""
    return _rational(x, _ERF, 4.0)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x)), which is 0 below -88.4, where the exponential is infinite."""
    return named(x, lambda x: named(at_least(at_most(x, 88.0), -89.0), lambda x: 1.0 / (1.0 + exp_within(x, -1.0))))


def log(x: Value) -> Value:
    """n log 2 + log m, where x = 2^n m with m between √(1/2) and √2: a polynomial on m - 1. Subnormal numbers are multiplied by
    2^23 first."""
    smallest, root_of_half = 1.17549435e-38, 0x3F3504F3

    def of_bits(bits: Value, shift: Value) -> Value:
        n = (bits - root_of_half) >> 23
        rest = (bits - (n << 23)).bits_as(float32) - 1.0
        return named(rest, lambda rest: named(n.cast(float32) - shift, lambda n: of_rest(rest, n)))

    def of_rest(rest: Value, n: Value) -> Value:
        series = named(rest * rest, lambda square: _polynomial(rest, _LOG) * rest * square + n * -2.12194440e-4 - 0.5 * square)
        return rest + series + n * 0.693359375

    def of(x: Value) -> Value:
        normal = select(x < smallest, x * 8388608.0, x)
        shift = select(x < smallest, constant(23.0, float32, x.type.lanes), 0.0)
        inside = named(normal.bits_as(int32), lambda bits: of_bits(bits, shift))
        outside = select(x.equals(0.0), -math.inf, select(x < 0.0, math.nan, x + x))
        return select((x > 0.0) & (x < math.inf), inside, outside)

    return named(x, of)


def softplus(x: Value) -> Value:
    """max(x, 0) + log(1 + t) with t = e^-|x|; the logarithm by the series of artanh(t / (2 + t)), so that small values keep their
    digits."""

    def series(s: Value) -> Value:
        return s * named(s * s, lambda square: _polynomial(square, _LOG_OF_ONE_AND))

    def of(x: Value) -> Value:
        small = named(exp_of_negative(0.0 - magnitude(x)), lambda t: named(t / (t + 2.0), series))
        return at_least(x, 0.0) + small

    return named(x, of)


def mish(x: Value) -> Value:
    """x tanh(softplus(x)), which is x n / (n + 2) with n = e^x (e^x + 2); beyond 20 it is x."""

    def of_power(x: Value, power: Value) -> Value:
        return named(power * (power + 2.0), lambda n: x * (n / (n + 2.0)))

    return named(x, lambda x: named(exp_of_negative(at_most(x, 20.0)), lambda power: of_power(x, power)))


def _rational(x: Value, coefficients: tuple[Sequence[float], Sequence[float]], limit: float) -> Value:
    def ratio(clamped: Value) -> Value:
        over, under = coefficients
        return clamped * named(clamped * clamped, lambda square: _polynomial(square, over) / _polynomial(square, under))

    def of(x: Value) -> Value:
        return select(x <= math.inf, named(at_least(at_most(x, limit), -limit), ratio), x)

    return named(x, of)


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule, the highest coefficient first."""
    total: Operand = coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    assert isinstance(total, Value)
    return total


_LOG_OF_ONE_AND = (2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0)
_EXP = (
    1.5515603590756655e-3, 8.363666944205761e-3, 4.163762554526329e-2, 1.666654348373413e-1, 5.000011324882507e-1, 1.0, 1.0,
)
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
    -2.4999993993e-1, 3.3333331174e-1,
)
_TANH = (
    (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
     6.37261928875436e-04, 4.89352455891786e-03),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)
_ERF = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
     -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02),
)
