"""Symbols for a size divided by a number and rounded down.

A network that repeatedly halves an image of dynamic height has `(s0+1)//2` rows, and then `(s0+3)//4`. The symbol's name encodes
the quotient, so that quotients computed in several ways have one name, and the name alone tells kernels what they can rely on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

import attrs


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
