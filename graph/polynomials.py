"""Polynomials with integer coefficients: the arithmetic that sizes of inference and sizes of kernels share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Monomial = tuple[Any, ...]
"""The multiplied factors, sorted by their text, each repeated by its power; () is the number 1."""

Terms = Mapping[Monomial, int]
"""The coefficient of each monomial; none is zero."""


class Polynomial:
    """A sum of terms. Arithmetic returns an `int` again if all factors cancel."""

    __slots__ = ()

    terms: Terms

    @classmethod
    def of(cls, terms: Iterable[tuple[Monomial, int]]) -> Any:
        """The sum of the terms: an `int` if no factor is left."""
        left = summed(terms)
        return cls(left) if any(left) else left.get((), 0)  # type: ignore[call-arg]

    @classmethod
    def terms_of(cls, value: Any) -> Terms | None:
        """The terms of a polynomial of this kind or of a number; None for anything else."""
        if isinstance(value, cls):
            return value.terms
        return ({(): int(value)} if value else {}) if isinstance(value, int) else None

    def at(self, values: Mapping[Any, int]) -> int:
        """Its value, given that of each symbol."""
        total = 0
        for monomial, count in self.terms.items():
            for factor in monomial:
                count *= self.factor_at(factor, values)
            total += count
        return total

    def factor_at(self, factor: Any, values: Mapping[Any, int]) -> int:
        """The value of a factor."""
        return values[factor]

    def __add__(self, other: Any) -> Any:
        terms = self.terms_of(other)
        return NotImplemented if terms is None else self.of([*self.terms.items(), *terms.items()])

    def __mul__(self, other: Any) -> Any:
        terms = self.terms_of(other)
        if terms is None:
            return NotImplemented
        return self.of((in_order((*a, *b)), i * j) for a, i in self.terms.items() for b, j in terms.items())

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self.of(_negative(self.terms))

    def __sub__(self, other: Any) -> Any:
        terms = self.terms_of(other)
        return NotImplemented if terms is None else self.of([*self.terms.items(), *_negative(terms)])

    def __rsub__(self, other: Any) -> Any:
        terms = self.terms_of(other)
        return NotImplemented if terms is None else self.of([*terms.items(), *_negative(self.terms)])


def _negative(terms: Terms) -> Iterable[tuple[Monomial, int]]:
    return ((monomial, -count) for monomial, count in terms.items())


def summed(terms: Iterable[tuple[Monomial, Any]]) -> dict[Monomial, Any]:
    """The terms with those of the same monomial added up."""
    total: dict[Monomial, Any] = {}
    for monomial, count in terms:
        total[monomial] = total.get(monomial, 0) + count
    return {monomial: count for monomial, count in total.items() if count}


def in_order(factors: Iterable[Any]) -> Monomial:
    """The product of these factors."""
    listed = tuple(factors)
    return tuple(sorted(listed, key=str)) if len(listed) > 1 else listed


def long_division(terms: Terms, divisor: Terms) -> Terms | None:
    """The quotient of two polynomials; None if it has a remainder or coefficients that are not integers. The first term of the
    remainder is divided by the divisor's first term."""
    left, quotient = terms, list[tuple[Monomial, int]]()
    lead = min(divisor, key=_rank, default=None)
    while left:
        first = min(left, key=_rank)
        factors = Counter(first)
        if lead is None or not Counter(lead) <= factors or left[first] % divisor[lead]:
            return None
        monomial, count = in_order((factors - Counter(lead)).elements()), left[first] // divisor[lead]
        quotient.append((monomial, count))
        left = summed([*left.items(), *((in_order((*monomial, *m)), -count * c) for m, c in divisor.items())])
    return summed(quotient)


def above_least(terms: Mapping[Monomial, Any], least: Callable[[Any], int]) -> dict[Monomial, Any]:
    """The polynomial of how much each factor is above its lower bound."""
    parts: list[tuple[Monomial, Any]] = []
    for monomial, count in terms.items():
        expanded: list[tuple[Monomial, Any]] = [((), count)]
        for factor in monomial:
            low = least(factor)
            expanded = [*[((*m, factor), c) for m, c in expanded], *([(m, c * low) for m, c in expanded] if low else [])]
        parts += expanded
    return summed(parts)


def written(terms: Terms, plus: str) -> str:
    """The canonical text: terms by descending degree, then by name."""
    parts = []
    for monomial, count in sorted(terms.items(), key=lambda term: _rank(term[0])):
        parts.append("*".join([*([str(count)] if count != 1 or not monomial else []), *map(str, monomial)]))
    return plus.join(parts).replace(f"{plus}-", plus.replace("+", "-"))


def _rank(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    """The sort key of a monomial: descending degree, then the factors' text. Multiplication by a monomial keeps this order."""
    return -len(monomial), tuple(map(str, monomial))
