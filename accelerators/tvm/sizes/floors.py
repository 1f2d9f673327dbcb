"""Floor division of a size by a number (a polynomial if there is one, else with a symbol for the quotient), and ONNX's automatic
padding, SAME_UPPER and SAME_LOWER, for static and dynamic sizes.

There are ceil(size / stride) results, and the padding depends on what the size lacks to a multiple of the stride. For a dynamic
size it is a sum of differences of quotients: with a stride of 3, `(s0+2)//3` exceeds `s0//3` unless the size is a multiple."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from partita.accelerators.tvm.sizes.extent import Extent, Floor, Indivisible, Size, floor_named, symbol


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


Divide = Callable[[Size, int], Size]
"""Floor division of a size by a number."""


def same_padding(size: Size, span: int, step: int, auto_pad: str, divide: Divide = floored) -> tuple[int, int]:
    """The padding before and after a dimension, for a window that covers `span` positions and moves by `step`."""
    totals = [max(span - step + lacking, 0) for lacking in range(step)]
    befores = [(total + (auto_pad == "SAME_LOWER")) // 2 for total in totals]
    afters = [total - before for total, before in zip(totals, befores, strict=True)]
    return _by_what_lacks(size, befores, divide), _by_what_lacks(size, afters, divide)


def _by_what_lacks(size: Size, amounts: Sequence[int], divide: Divide) -> int:
    """`amounts[-size % len(amounts)]`, the amount for what the size lacks to a multiple; a sum of quotients if it is dynamic."""
    step = len(amounts)
    if isinstance(size, int):
        return amounts[-size % step]
    amount: Size = amounts[0]
    for lacking in range(1, step):
        more = amounts[lacking] - amounts[lacking - 1]
        if more:
            amount = amount + (divide(size + (step - 1), step) - divide(size + (lacking - 1), step)) * more
    return amount  # type: ignore[return-value]  # Kernels treat an extent as an int.
