"""ONNX's automatic padding, SAME_UPPER and SAME_LOWER, for sizes that are known and for those that are not.

With a stride there are as many results as the size has strides, rounded up, and how much is padded depends on what the size lacks
to whole strides. For a size that is not known it is a sum of quotients: a size of 5 or 6 lacks less than a size of 4 where
`(s0+2)//3` is more than `s0//3`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from partita.accelerators.tvm.sizes.extent import Size
from partita.accelerators.tvm.sizes.floors import floored

Divide = Callable[[Size, int], Size]
"""A size divided by a number and rounded down."""


def same_padding(size: Size, span: int, step: int, auto_pad: str, divide: Divide = floored) -> tuple[int, int]:
    """The padding before a dimension and behind it, for a window that covers `span` positions and moves by `step`."""
    totals = [max(span - step + lacking, 0) for lacking in range(step)]
    befores = [(total + (auto_pad == "SAME_LOWER")) // 2 for total in totals]
    afters = [total - before for total, before in zip(totals, befores, strict=True)]
    return _by_what_lacks(size, befores, divide), _by_what_lacks(size, afters, divide)


def _by_what_lacks(size: Size, amounts: Sequence[int], divide: Divide) -> int:
    """The amount that stands at the number that the size lacks to a multiple of how many amounts there are."""
    step = len(amounts)
    if isinstance(size, int):
        return amounts[-size % step]
    amount: Size = amounts[0]
    for lacking in range(1, step):
        more = amounts[lacking] - amounts[lacking - 1]
        if more:
            amount = amount + (divide(size + (step - 1), step) - divide(size + (lacking - 1), step)) * more
    return amount  # type: ignore[return-value]  # To a kernel an extent is a number.
