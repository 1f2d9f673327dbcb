"""Symbols that have to stand for equal sizes.

An exporter that does not know two sizes to be equal gives them symbols of their own. Ops are valid only where some of them agree:
matrices that are multiplied, tensors that are joined. Then one symbol is said by others, `s3` by `s1+s2`; whether a call's sizes
agree is looked at when it comes (`any_size.py`), and a size where they do not is compiled by itself."""

from __future__ import annotations

import math
from collections import Counter
from functools import reduce
from operator import and_

from partita.accelerators.tvm.sizes.extent import Extent, Monomial, Size, known_least, symbol
from partita.accelerators.tvm.sizes.quotients import floor_named


class Equations:
    """What has been learned of symbols, each of which counts from one on."""

    def __init__(self) -> None:
        self.meanings: dict[str, Size] = {}
        """The size that a symbol stands for, in symbols of which nothing is said."""

    def settled(self, size: Size) -> Size:
        """The size without symbols that others say."""
        if not isinstance(size, Extent) or self.meanings.keys().isdisjoint(size.symbols):
            return size
        terms = size.terms.items()
        return sum(count * math.prod(self.meanings.get(name, symbol(name)) for name in names) for names, count in terms)

    def hold(self, a: Size, b: Size) -> bool:
        """Are both sizes equal, as far as is known, or from now on? They are not where no symbol can be said by others."""
        difference = self.settled(a) - self.settled(b)
        if not isinstance(difference, Extent):
            return difference == 0
        solved = _solved(difference)
        if solved is None:
            return False
        name, meaning = solved
        self.meanings[name] = meaning
        self.meanings.update({other: self.settled(size) for other, size in self.meanings.items()})
        return True


def _solved(difference: Extent) -> tuple[str, Size] | None:
    """A symbol, and what it has to be so that the difference is nothing: a size of one at least. None where no symbol is. Of
    several the last is taken: the first inputs say the sizes of the others."""
    if len(difference.terms) == 1 or any(floor_named(name) is not None for name in difference.symbols):
        return None
    left = _without_common(difference)
    for monomial in sorted(left.terms, key=_number, reverse=True):
        if len(monomial) != 1 or not monomial[0].startswith("s") or left.terms[monomial] not in (1, -1):
            continue
        if sum(monomial[0] in other for other in left.terms) == 1:
            meaning = symbol(monomial[0]) - left * left.terms[monomial]
            if known_least(meaning) >= 1:
                return monomial[0], meaning
    return None


def _without_common(size: Extent) -> Extent:
    """The size divided by all numbers and symbols that divide each of its terms: none of these is zero."""
    common = reduce(and_, map(Counter, size.terms))
    quotient = size.divided({tuple(sorted(common.elements())): math.gcd(*size.terms.values())})
    assert isinstance(quotient, Extent)
    return quotient


def _number(monomial: Monomial) -> int:
    """The number of a symbol, in the order of the inputs."""
    return int(monomial[0][1:]) if len(monomial) == 1 else -1
