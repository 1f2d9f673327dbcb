"""A size as a polynomial in a graph's symbols: `12*s0*s1`, `s1+1`.

An extent is a string, its own text, so that a type can hold it like any symbol, and two are equal if the polynomials are. An
operation that needs the value is an error: a kernel that cannot do without has no form for any size.

A size divided by a number and rounded down has a symbol of its own. A network that repeatedly halves an image of dynamic height
has `(s0+1)//2` rows, and then `(s0+3)//4`. The symbol's name encodes the quotient, so that quotients computed in several ways
have one name, and the name alone tells kernels what they can rely on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

import attrs

from partita.accelerators.errors import CompileError
from partita.graph.polynomials import Polynomial, Terms, above_least, long_division, written
from partita.graph.types import TensorType, Type


@attrs.frozen(slots=True)
class Floor:
    """The quotient (base + more) // divisor, with more < divisor."""

    base: str
    """The divided symbol, which is not a quotient itself."""
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


class Indivisible(CompileError):
    """A size has to be divided that is a multiple of the divisor only for some values of its symbols."""

    def __init__(self, extent: Extent, divisor: int, cause: str) -> None:
        super().__init__(cause)
        self.extent = extent
        """The dividend."""
        self.divisor = divisor
        """The divisor."""


class Extent(Polynomial, str):
    """A dynamic size. Comparisons have a result if it is the same for all values of the symbols."""

    def __new__(cls, terms: Terms) -> Extent:
        extent = str.__new__(cls, written(terms, "+"))
        extent.terms = terms
        return extent

    @property
    def symbols(self) -> tuple[str, ...]:
        """Its symbols, sorted."""
        return tuple(sorted({symbol for monomial in self.terms for symbol in monomial}))

    @property
    def least(self) -> int | None:
        """Its smallest value for symbols of at least 1; None if it may decrease as a symbol grows."""
        above = above_least(self.terms, lambda symbol: 1)
        return sum(self.terms.values()) if all(count > 0 for monomial, count in above.items() if monomial) else None

    def __floordiv__(self, other: object) -> Extent | int:
        if not isinstance(other, (int, Extent)):
            return NotImplemented
        quotient = self.divided(other)
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
        if isinstance(other, Extent) and self.divided(other) is not None:
            return 0
        if not isinstance(other, (int, Extent)):
            return NotImplemented
        error = self._asked(f"{self} % {other}")
        raise Indivisible(self, other, error.cause) if isinstance(other, int) else error

    def __rmod__(self, other: object) -> int:
        raise self._asked(f"{other} % {self}")

    def divided(self, by: Size) -> Size | None:
        """The quotient of the polynomials if it has integer coefficients and no remainder, else None."""
        terms = long_division(self.terms, self.terms_of(by) or {})
        return None if terms is None else self.of(terms.items())  # type: ignore[no-any-return]

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
