"""Reductions, over dimensions as well as over windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import attrs

from partita.accelerators.tvm.kernels.language import Element, Value, sqrt
from partita.accelerators.tvm.kernels.shared.functions import larger, magnitude, smaller


@attrs.frozen(slots=True)
class Reducer:
    """A reduction, described by the operations that combine elements into one element of the result."""

    start: float
    """The initial value."""
    joined: Callable[[Value, Value], Value]
    """Combines the result so far and one more element."""
    taken: Callable[[Value], Value] = lambda x: x
    """Transforms each element before it is combined."""
    finished: Callable[[Value, Value | float], Value] = lambda total, count: total
    """Computes the result from the combined elements and their count."""
    takes_integers: bool = True
    """True if a reduction of integers has a kernel."""

    def start_of(self, element: Element) -> float:
        """The initial value for an element type: integers have a largest and a smallest value instead of infinities."""
        if not element.is_whole or math.isfinite(self.start):
            return self.start
        bits = element.bits - (element.kind == "int")
        return 2**bits - 1 if self.start > 0 else 2**bits - 2**element.bits


def _sum(total: Value, x: Value) -> Value:
    return total + x


SUM = Reducer(0.0, _sum)
MEAN = Reducer(0.0, _sum, finished=lambda total, count: total / count, takes_integers=False)
LARGEST = Reducer(-math.inf, larger)
SMALLEST = Reducer(math.inf, smaller)
SUM_OF_MAGNITUDES = Reducer(0.0, _sum, magnitude, takes_integers=False)
ROOT_OF_SQUARES = Reducer(0.0, _sum, lambda x: x * x, lambda total, count: sqrt(total), takes_integers=False)

REDUCERS: Mapping[str, Reducer] = {
    "ReduceSum": SUM,
    "ReduceMean": MEAN,
    "ReduceMax": LARGEST,
    "ReduceMin": SMALLEST,
    "ReduceProd": Reducer(1.0, lambda total, x: total * x),
    "ReduceL1": SUM_OF_MAGNITUDES,
    "ReduceL2": ROOT_OF_SQUARES,
    "ReduceSumSquare": Reducer(0.0, _sum, lambda x: x * x),
}
"""The reducer of each op that reduces dimensions."""
