"""ONNX's automatic padding, SAME_UPPER and SAME_LOWER, for static and dynamic sizes.

There are ceil(size / stride) results, and the padding depends on what the size lacks to a multiple of the stride. For a dynamic
size it is a sum of differences of quotients: with a stride of 3, `(s0+2)//3` exceeds `s0//3` only if the size is no multiple."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from partita.accelerators.tvm.sizes.extent import Size
from partita.accelerators.tvm.sizes.floors import floored

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
