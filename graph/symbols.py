"""Sizes that may depend on symbols: an `int`, or a `Size`, which is a polynomial with integer coefficients.

Non-polynomial expressions (a floor division, a minimum, a size times a fraction) are factors of a polynomial. Equal
polynomials compare equal and are equal dictionary keys. Comparisons return True, False, or None if the answer depends on the
symbols."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from operator import and_
from typing import Any

import attrs
import numpy as np

from partita.graph.polynomials import Monomial, Polynomial, above_least, in_order, long_division, summed, written


@attrs.frozen(slots=True, cache_hash=True, repr=False)
class Symbol:
    """A named size."""

    name: str
    is_computed: bool = False
    """True for a data-dependent size, which is known once the op has run."""
    least: int = 0
    """Its lower bound."""

    def __repr__(self) -> str:
        return self.name


@attrs.frozen(slots=True, cache_hash=True, repr=False)
class Term:
    """A factor that is not a polynomial of its operands."""

    kind: str
    """One of "//", "min", "max", "broadcast" and "scaled"."""
    operands: tuple[Any, ...]

    def __repr__(self) -> str:
        a, b = self.operands
        if self.kind == "//":
            return f"({a})//{b}" if isinstance(b, int) else f"({a})//({b})"
        return f"{self.kind}({a}, {b})"

    def at(self, values: Mapping[Symbol, int]) -> int:
        """The factor, given each symbol's value."""
        a, b = [operand.at(values) if isinstance(operand, Size) else operand for operand in self.operands]
        return _EVALUATED[self.kind](a, b)


def _scaled_size(size: int, factor: float) -> int:
    """floor(size × factor) in single precision, as in ONNX's Resize."""
    with np.errstate(over="ignore"):
        return int(np.floor(np.float32(size) * np.float32(factor)))


_EVALUATED: dict[str, Callable[[Any, Any], int]] = {
    "//": lambda a, b: a // b if b else 0, "min": min, "max": max, "broadcast": lambda a, b: b if a == 1 else a,
    "scaled": _scaled_size,
}


class Size(Polynomial):
    """A size that depends on symbols."""

    __slots__ = ("_hash", "_least", "_text", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = terms
        self._hash: int | None = None
        self._text: str | None = None
        self._least: Any = self  # Not computed yet.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __repr__(self) -> str:
        if self._text is None:  # Without a cache the text of nested terms takes exponential time.
            self._text = written(self.terms, " + ")
        return self._text

    def __floordiv__(self, other: Any) -> Any:
        return quotient(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return quotient(other, self)

    def __mod__(self, other: Any) -> Any:
        return self - quotient(self, other) * other

    @property
    def is_unwieldy(self) -> bool:
        """True if further arithmetic would take long: products of sums grow with each op."""
        return len(self.terms) > MOST_TERMS or any(len(monomial) > HIGHEST for monomial in self.terms)

    def factor_at(self, factor: Symbol | Term, values: Mapping[Symbol, int]) -> int:
        return values[factor] if isinstance(factor, Symbol) else factor.at(values)


AnySize = int | Size
Sizes = tuple[AnySize, ...]

LARGEST = (1 << 63) - 1
"""The largest size that a model can state."""

MOST_TERMS, HIGHEST = 64, 16
"""Limits of polynomials: number of terms, and of factors of a term."""

MOST_SPLITS, MOST_FACTORS = 4, 8
"""Limits for expressions whose bounds are computed, since that takes exponential time: number of case splits, of factors."""


def symbol(name: str, is_computed: bool = False, least: int = 0) -> Size:
    """This symbol as a size."""
    return Size({(Symbol(name, is_computed, least),): 1})


def symbols_of(*sizes: Any) -> set[Symbol]:
    """The symbols that these sizes depend on."""
    factors = {factor for size in sizes if isinstance(size, Size) for monomial in size.terms for factor in monomial}
    return {s for f in factors for s in ([f] if isinstance(f, Symbol) else symbols_of(*f.operands))}


def has_terms(size: AnySize) -> bool:
    """True for a size that is not a polynomial of symbols."""
    return isinstance(size, Size) and any(isinstance(factor, Term) for monomial in size.terms for factor in monomial)


def at(size: AnySize, values: Mapping[Symbol, int]) -> int:
    """The size, given each symbol's value."""
    return size if isinstance(size, int) else size.at(values)


def quotient(size: AnySize, divisor: AnySize) -> AnySize:
    """floor(size / divisor); 0 if the divisor is 0."""
    if isinstance(size, int) and isinstance(divisor, int):
        return size // divisor if divisor else 0
    exact = divided(size, divisor)
    if exact is not None or not isinstance(divisor, int) or divisor <= 0:
        return exact if exact is not None else _factor("//", size, divisor)
    terms = Size.terms_of(size) or {}
    whole = Size.of((m, count // divisor) for m, count in terms.items() if m and count % divisor == 0)
    rest, more = {m: count for m, count in terms.items() if m and count % divisor}, terms.get((), 0)
    if not rest:
        return whole + more // divisor
    if next(iter(sorted(rest.items(), key=lambda term: str(term[0]))))[1] < 0:  # floor(-n / d) = -floor((n + d - 1) / d)
        return whole - quotient(Size.of((m, -count) for m, count in rest.items()) - more + divisor - 1, divisor)
    common = math.gcd(divisor, *rest.values())
    left, more, divisor = {m: count // common for m, count in rest.items()}, more // common, divisor // common
    (first, count), *others = left.items()
    if not others and count == 1 and len(first) == 1 and isinstance(first[0], Term) and first[0].kind == "//":
        inner, by = first[0].operands
        if isinstance(by, int) and by > 0:  # nested quotients are flattened
            return whole + quotient(inner + more * by, by * divisor)
    constant, more = divmod(more, divisor)
    return whole + constant + _factor("//", Size.of([*left.items(), ((), more)]), divisor)


def divided(size: AnySize, by: AnySize) -> AnySize | None:
    """The quotient of two polynomials; None if there is a remainder."""
    terms = long_division(Size.terms_of(size) or {}, Size.terms_of(by) or {})
    return None if terms is None else Size.of(terms.items())


def smaller(a: AnySize, b: AnySize) -> AnySize:
    """The minimum of both."""
    return b if is_at_least(a, b) else a if is_at_least(b, a) else _factor("min", *sorted((a, b), key=str))


def larger(a: AnySize, b: AnySize) -> AnySize:
    """The maximum of both."""
    return a if is_at_least(a, b) else b if is_at_least(b, a) else _factor("max", *sorted((a, b), key=str))


def joined(a: AnySize, b: AnySize) -> AnySize:
    """The size that two sizes are broadcast to: the one that is not 1."""
    for one, other in ((a, b), (b, a)):
        if one == 1 or one == other or is_at_least(other, 2) or other == 0:
            return other
    leaves = [*_broadcast_from(a), *_broadcast_from(b)]
    result, *others = sorted(dict.fromkeys(leaves), key=str)
    for other in others:
        result = _factor("broadcast", result, other)
    return result


def covers(a: AnySize, b: AnySize) -> bool:
    """True if `b` is among the sizes that `a` was broadcast from."""
    return set(_broadcast_from(b)) <= set(_broadcast_from(a))


def _broadcast_from(size: AnySize) -> list[AnySize]:
    """The sizes that a size was broadcast from, or the size itself."""
    if isinstance(size, Size) and len(size.terms) == 1:
        ((monomial, count),) = size.terms.items()
        if count == 1 and len(monomial) == 1 and isinstance(monomial[0], Term) and monomial[0].kind == "broadcast":
            return [leaf for operand in monomial[0].operands for leaf in _broadcast_from(operand)]
    return [size]


def scaled(size: AnySize, factor: float) -> AnySize:
    """floor(size × factor), with a factor in single precision."""
    if isinstance(size, int):
        return _scaled_size(size, factor)
    numerator, denominator = float(factor).as_integer_ratio()
    return quotient(size * numerator, denominator) if denominator <= 512 else _factor("scaled", size, float(factor))


def least(size: AnySize) -> int | None:
    """A lower bound; None if there is no static one."""
    if isinstance(size, int):
        return size
    if size._least is size:
        bound = _least(size.terms if not has_terms(size) else {m: Fraction(count) for m, count in size.terms.items()})
        size._least = None if bound is None else math.ceil(bound)
    return size._least  # type: ignore[no-any-return]


def is_at_least(a: AnySize, b: AnySize) -> bool | None:
    """a >= b, or None if that depends on the symbols."""
    difference = a - b
    low = least(difference)
    if low is not None and low >= 0:
        return True
    low = least(-difference)
    return False if low is not None and low >= 1 else None


def replaced(size: AnySize, meanings: Mapping[Symbol, AnySize]) -> AnySize:
    """The size with these symbols substituted."""
    if isinstance(size, int) or not meanings or meanings.keys().isdisjoint(symbols_of(size)):
        return size
    total: AnySize = 0
    for monomial, count in size.terms.items():
        product: AnySize = count
        for factor in monomial:
            if isinstance(factor, Symbol):
                product = product * meanings.get(factor, Size({(factor,): 1}))
            else:
                a, b = [replaced(operand, meanings) if isinstance(operand, Size) else operand for operand in factor.operands]
                product = product * _BUILT[factor.kind](a, b)
        total = total + product
    return total


def solved(difference: AnySize) -> tuple[Symbol, AnySize] | None:
    """Solves difference = 0 for one symbol, preferably a computed one, else the last by name. None
    if no symbol can be isolated."""
    if isinstance(difference, int):
        return None
    common: Counter[Any] = reduce(and_, map(Counter, difference.terms))
    if all(least(Size({(factor,): 1})) or 0 for factor in common):  # None of these factors is 0.
        by = Size({in_order(common.elements()): math.gcd(*difference.terms.values())})
        simpler = divided(difference, by)
        difference = difference if simpler is None else simpler
    if isinstance(difference, int):
        return None
    candidates = [m[0] for m, count in difference.terms.items() if len(m) == 1 and isinstance(m[0], Symbol) and abs(count) == 1]
    for name in sorted(candidates, key=lambda s: (s.is_computed, len(s.name), s.name), reverse=True):
        meaning = Size({(name,): 1}) - difference * difference.terms[(name,)]
        if name not in symbols_of(meaning):
            low = least(meaning)
            if low is not None and low >= name.least:
                return name, meaning
    return None


def _factor(kind: str, a: AnySize, b: Any) -> Size:
    return Size({(Term(kind, (a, b)),): 1})


def _least(terms: Mapping[Monomial, Any], splits: int = MOST_SPLITS) -> int | Fraction | None:
    """A lower bound of a polynomial: each non-polynomial factor is replaced by its bound, then each symbol by its own."""
    if splits < 0 or any(len(monomial) > MOST_FACTORS for monomial in terms):
        return None
    for monomial, count in terms.items():
        for i, factor in enumerate(monomial):
            if isinstance(factor, Term):
                others, rest = monomial[:i] + monomial[i + 1 :], [(m, c) for m, c in terms.items() if m != monomial]
                if any((least(Size({(other,): 1})) or 0) < 0 for other in others):
                    return None
                cases, any_bounds = _bounding(factor, count)
                bounds = [_least(summed([*rest, *((in_order((*others, *m)), c) for m, c in case)]), splits - 1) for case in cases]
                known = [bound for bound in bounds if bound is not None]
                return max(known, default=None) if any_bounds else min(known) if known and len(known) == len(bounds) else None
    if any(s.least for monomial in terms for s in monomial):  # type: ignore[union-attr]
        terms = above_least(terms, lambda one: one.least)
    return None if any(count < 0 for monomial, count in terms.items() if monomial) else terms.get((), 0)


def _bounding(factor: Term, count: Fraction) -> tuple[list[list[tuple[Monomial, Fraction]]], bool]:
    """Polynomials of which each (True) or only the smallest (False) is a lower bound of `count` times the factor."""
    a, b = factor.operands
    if factor.kind in ("min", "max", "broadcast"):
        cases = [[(m, count * c) for m, c in (Size.terms_of(x) or {}).items()] for x in (a, b)]
        return cases, (factor.kind, count > 0) in (("max", True), ("min", False))
    if isinstance(b, Size) or b <= 0:
        return ([[]], True) if count > 0 and (least(a) or 0) >= 0 and (least(b) or 0) >= 0 else ([], True)
    by = Fraction(b) if factor.kind == "//" else 1 / Fraction(b)
    slack = (1 - 1 / by if factor.kind == "//" else 2) if count > 0 else (0 if factor.kind == "//" else -1)
    line = [*((m, count * c / by) for m, c in a.terms.items()), ((), -count * slack)]
    low = least(a)
    return [line, []] if count > 0 and low is not None and low >= 0 else [line], True


_BUILT: dict[str, Callable[[Any, Any], AnySize]] = {
    "//": quotient, "min": smaller, "max": larger, "broadcast": joined, "scaled": scaled,
}
