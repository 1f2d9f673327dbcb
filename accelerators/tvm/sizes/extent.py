"""A size as a polynomial in a graph's symbols: `12*s0*s1`, `s1+1`.

An extent is a string, its own text, so that a type can hold it like any symbol, and two are equal if the polynomials are. An
operation that needs the value is an error: a kernel that cannot do without has no form for any size.

A size divided by a number and rounded down has a symbol of its own. A network that repeatedly halves an image of dynamic height
has `(s0+1)//2` rows, and then `(s0+3)//4`. The symbol's name encodes the quotient, so that quotients computed in several ways
have one name, and the name alone tells kernels what they can rely on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import combinations

import attrs

from partita.accelerators.errors import CompileError
from partita.graph.types import TensorType, Type


@attrs.frozen(slots=True)
class Floor:
    """The quotient (base + more) // divisor, with more < divisor."""

    base: str
    """The divided symbol, which is no quotient itself."""
    more: int
    """The summand before the division."""
    divisor: int
    """The divisor."""

    @property
    def name(self) -> str:
        """The name of its symbol."""
        return f"{self.base}_plus_{self.more}_by_{self.divisor}"

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value, given that of its base."""
        return (sizes[self.base] + self.more) // self.divisor


def floor_named(name: str) -> Floor | None:
    """The quotient of this symbol; None for any other symbol."""
    parts = re.fullmatch(r"([a-z]\d+)_plus_(\d+)_by_(\d+)", name)
    return None if parts is None else Floor(parts[1], int(parts[2]), int(parts[3]))


def least_with_quotients(terms: Mapping[tuple[str, ...], int]) -> int | None:
    """A lower bound of the sum for symbols of at least 1, from the bounds of quotients; None if it decreases as a symbol
    grows."""
    least, slopes = Fraction(0), dict[str, Fraction]()
    for monomial, count in terms.items():
        known = floor_named(monomial[0]) if len(monomial) == 1 else None
        if known is not None:
            bound = known.more if count < 0 else known.more + 1 - known.divisor
            least += Fraction(count * bound, known.divisor)
            slopes[known.base] = slopes.get(known.base, Fraction(0)) + Fraction(count, known.divisor)
        elif len(monomial) == 1:
            slopes[monomial[0]] = slopes.get(monomial[0], Fraction(0)) + count
        elif monomial and count < 0:
            return None
        else:
            least += count
    return None if min(slopes.values(), default=Fraction(0)) < 0 else math.ceil(least + sum(slopes.values()))


Monomial = tuple[str, ...]
"""The multiplied symbols, sorted, each repeated by its power; () is the number 1."""

Terms = Mapping[Monomial, int]
"""The coefficient of each monomial; none is zero."""


class Indivisible(CompileError):
    """A size has to be divided that is a multiple of the divisor only for some values of its symbols."""

    def __init__(self, extent: Extent, divisor: int, cause: str) -> None:
        super().__init__(cause)
        self.extent = extent
        """The dividend."""
        self.divisor = divisor
        """The divisor."""


class Extent(str):
    """A dynamic size. Sums, differences and products are extents, or ints if all symbols cancel. Comparisons have a result if it
    is the same for all values of the symbols."""

    terms: Terms

    def __new__(cls, terms: Terms) -> Extent:
        extent = super().__new__(cls, _text(terms))
        extent.terms = terms
        return extent

    @property
    def symbols(self) -> tuple[str, ...]:
        """Its symbols, sorted."""
        return tuple(sorted({symbol for monomial in self.terms for symbol in monomial}))

    @property
    def least(self) -> int | None:
        """Its smallest value for symbols of at least 1; None if it may decrease as a symbol grows."""
        above = self.terms if all(count > 0 for monomial, count in self.terms.items() if monomial) else _above_one(self.terms)
        grows = all(count > 0 for monomial, count in above.items() if monomial)
        return sum(self.terms.values()) if grows else None

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value, given each symbol's."""
        total = 0
        for monomial, count in self.terms.items():
            for symbol in monomial:
                count *= sizes[symbol]
            total += count
        return total

    def __add__(self, other: object) -> Extent | int:  # type: ignore[override]
        terms = _terms(other)
        return NotImplemented if terms is None else size_of([*self.terms.items(), *terms.items()])

    __radd__ = __add__

    def __neg__(self) -> Extent | int:
        return size_of((monomial, -count) for monomial, count in self.terms.items())

    def __sub__(self, other: object) -> Extent | int:
        terms = _terms(other)
        return NotImplemented if terms is None else size_of([*self.terms.items(), *((m, -count) for m, count in terms.items())])

    def __rsub__(self, other: object) -> Extent | int:
        terms = _terms(other)
        return NotImplemented if terms is None else size_of([*terms.items(), *((m, -count) for m, count in self.terms.items())])

    def __mul__(self, other: object) -> Extent | int:  # type: ignore[override]
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        return size_of((tuple(sorted((*a, *b))), i * j) for a, i in self.terms.items() for b, j in terms.items())

    __rmul__ = __mul__  # type: ignore[assignment]

    def __floordiv__(self, other: object) -> Extent | int:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        quotient = self.divided(terms)
        if quotient is None and isinstance(other, int) and other > 0:
            quotient = (self - self % other) // other
        if quotient is None:
            raise self._asked(f"{self} // {other}")
        return quotient

    def __rfloordiv__(self, other: object) -> int:
        raise self._asked(f"{other} // {self}")

    def __truediv__(self, other: object) -> float:
        raise self._asked(f"{self} / {other}")

    __rtruediv__ = __truediv__

    def __mod__(self, other: object) -> int:  # type: ignore[override]
        if isinstance(other, int) and all(count % other == 0 for monomial, count in self.terms.items() if monomial):
            return self.terms.get((), 0) % other
        if isinstance(other, Extent) and self.divided(other.terms) is not None:
            return 0
        if not isinstance(other, (int, Extent)):
            return NotImplemented
        error = self._asked(f"{self} % {other}")
        raise Indivisible(self, other, error.cause) if isinstance(other, int) else error

    def __rmod__(self, other: object) -> int:
        raise self._asked(f"{other} % {self}")

    def divided(self, by: Terms) -> Extent | int | None:
        """The quotient of the polynomials if it has integer coefficients and no remainder, else None. Long division: the first
        term of the remainder is divided by the divisor's first term."""
        left, quotient = self.terms, list[tuple[Monomial, int]]()
        while left:
            term = _quotient(left, by)
            if term is None:
                return None
            quotient.append(term)
            monomial, count = term
            taken = [(tuple(sorted((*monomial, *other))), -count * factor) for other, factor in by.items()]
            left = _summed([*left.items(), *taken])
        return size_of(quotient)

    def __lt__(self, other: object) -> bool:
        return self._is_below(other, f"{self} < {other}")

    def __le__(self, other: object) -> bool:
        return not self._is_above(other, f"{self} <= {other}")

    def __gt__(self, other: object) -> bool:
        return self._is_above(other, f"{self} > {other}")

    def __ge__(self, other: object) -> bool:
        return not self._is_below(other, f"{self} >= {other}")

    def _is_below(self, other: object, question: str) -> bool:
        """True if it is less than the other; CompileError if that depends on the symbols."""
        size = self._compared(other, question)
        return self._answer(is_less(self, size), is_less(size, self + 1), question)

    def _is_above(self, other: object, question: str) -> bool:
        """True if it is more than the other; CompileError if that depends on the symbols."""
        size = self._compared(other, question)
        return self._answer(is_less(size, self), is_less(self, size + 1), question)

    def _compared(self, other: object, question: str) -> Size:
        """The other side of a comparison, if it is a size; CompileError if it is not."""
        if not isinstance(other, (int, Extent)):
            raise self._asked(question)
        return other

    def _answer(self, is_so: bool, is_not: bool, question: str) -> bool:
        """`is_so`, or CompileError if neither the comparison nor its negation holds for all values of the symbols."""
        if not (is_so or is_not):
            raise self._asked(question)
        return is_so

    def __int__(self) -> int:
        raise self._asked(f"int({self})")

    __index__ = __int__

    def _asked(self, what: str) -> CompileError:
        return CompileError(f"no kernel for any size: {what} is known only when the model is called")


LEAST = -(1 << 62)
"""Less than any size: the bound of an extent that decreases as a symbol grows."""

Size = int | Extent
"""A static or dynamic size. Kernels annotate it as `int`: an extent behaves like one, and rejects what it cannot do."""


def symbol(name: str) -> Extent:
    """The extent that is this symbol."""
    return Extent({(name,): 1})


def sizes_of(known: Type | None) -> tuple[Size, ...] | None:
    """The sizes of a tensor; None if one of them is neither an integer nor an extent."""
    shape = known.shape if isinstance(known, TensorType) else None
    if shape is None or not all(isinstance(size, (int, Extent)) for size in shape):
        return None
    return shape  # type: ignore[return-value]


def has_extents(known: Type | None) -> bool:
    """True if one of the tensor's sizes is an extent."""
    return isinstance(known, TensorType) and any(isinstance(size, Extent) for size in known.shape or ())


def is_multiple(size: Size, of: int) -> bool:
    """True if the size is a multiple of a number for all values of the symbols."""
    if isinstance(size, Extent):
        return all(count % of == 0 for count in size.terms.values())
    return size % of == 0


def known_least(size: Size) -> int:
    """A lower bound of the size for symbols of at least 1; `LEAST` if none is known."""
    if isinstance(size, int):
        return size
    least = least_with_quotients(size.terms) if size.least is None else size.least
    return LEAST if least is None else least


def is_less(a: Size, b: Size) -> bool:
    """True if `a` is less than `b` for all values of the symbols."""
    return known_least(b - a) > 0


def value_of(size: Size, sizes: Mapping[str, int]) -> int:
    """The size's value, given each symbol's."""
    return size.at(sizes) if isinstance(size, Extent) else size


def _terms(value: object) -> Terms | None:
    if isinstance(value, Extent):
        return value.terms
    return ({(): value} if value else {}) if isinstance(value, int) else None


def size_of(terms: Iterable[tuple[Monomial, int]]) -> Extent | int:
    """The sum of the terms: an int if no symbol is left."""
    left = _summed(terms)
    return Extent(left) if any(left) else left.get((), 0)


def _summed(terms: Iterable[tuple[Monomial, int]]) -> Terms:
    """The terms with those of the same monomial added up."""
    summed: dict[Monomial, int] = {}
    for monomial, count in terms:
        summed[monomial] = summed.get(monomial, 0) + count
    return {monomial: count for monomial, count in summed.items() if count}


def _above_one(terms: Terms) -> Terms:
    """The polynomial in (symbol - 1)."""
    parts = list[tuple[Monomial, int]]()
    for monomial, count in terms.items():
        for length in range(len(monomial) + 1):
            parts += [(chosen, count) for chosen in combinations(monomial, length)]
    return _summed(parts)


def _place(monomial: Monomial) -> tuple[int, Monomial]:
    """The sort key of a monomial: descending degree, then name. Multiplication by a monomial keeps this order."""
    return -len(monomial), monomial


def _quotient(terms: Terms, by: Terms) -> tuple[Monomial, int] | None:
    """The first term divided by the divisor's first one; None if it is not divisible."""
    if not by:
        return None
    first, divisor = min(terms, key=_place), min(by, key=_place)
    symbols = list(first)
    for symbol in divisor:
        if symbol not in symbols:
            return None
        symbols.remove(symbol)
    return None if terms[first] % by[divisor] else (tuple(symbols), terms[first] // by[divisor])


def _text(terms: Terms) -> str:
    """The canonical text of the polynomial: by descending degree, then by name."""
    parts = []
    for monomial, count in sorted(terms.items(), key=lambda term: _place(term[0])):
        factors = [*([str(count)] if count != 1 or not monomial else []), *monomial]
        parts.append("*".join(factors))
    return "+".join(parts).replace("+-", "-")
