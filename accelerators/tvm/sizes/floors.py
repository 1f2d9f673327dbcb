"""Floor division of a size by a number: a polynomial if there is one, else with a symbol for the quotient."""

from __future__ import annotations

import math

from partita.accelerators.tvm.sizes.extent import Extent, Indivisible, Size, symbol
from partita.accelerators.tvm.sizes.quotients import Floor, floor_named


def floored(size: Size, divisor: int) -> Size:
    """`size // divisor`; Indivisible if more than one term leaves a remainder."""
    if isinstance(size, int):
        return size // divisor
    even = {monomial: count for monomial, count in size.terms.items() if monomial and count % divisor == 0}
    rest = {monomial: count for monomial, count in size.terms.items() if monomial and count % divisor}
    if not rest:
        return size // divisor
    if len(rest) > 1:
        raise _indivisible(size, divisor)
    ((monomial, count),) = rest.items()
    common = math.gcd(count, divisor)
    if len(monomial) > 1 or abs(count) != common:
        raise _indivisible(size, divisor)
    quotient = _unit_floor(monomial[0], count < 0, size.terms.get((), 0) // common, divisor // common)
    return quotient + Extent(even) // divisor if even else quotient


def _unit_floor(name: str, is_negative: bool, more: int, divisor: int) -> Size:
    """`(±symbol + more) // divisor`; nested quotients are flattened."""
    if is_negative:
        return -_unit_floor(name, False, divisor - 1 - more, divisor)
    inner = floor_named(name) or Floor(name, 0, 1)
    whole, rest = divmod(inner.more + more * inner.divisor, inner.divisor * divisor)
    return symbol(Floor(inner.base, rest, inner.divisor * divisor).name) + whole


def _indivisible(size: Extent, divisor: int) -> Indivisible:
    cause = f"no kernel for any size: {size} // {divisor} is known only when the model is called"
    return Indivisible(size, divisor, cause)
