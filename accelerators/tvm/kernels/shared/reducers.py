"""What reductions do with numbers, over dimensions as over windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import attrs

from partita.accelerators.tvm.kernels.language import Element, Value, sqrt
from partita.accelerators.tvm.kernels.shared.functions import larger, magnitude, smaller


@attrs.frozen(slots=True)
class Reducer:
    """What a reduction does with the numbers of one position of its result."""

    start: float
    """The number that the reduction begins with."""
    joined: Callable[[Value, Value], Value]
    """Joins the numbers so far and one more."""
    taken: Callable[[Value], Value] = lambda x: x
    """Changes each number before it is joined."""
    finished: Callable[[Value, Value | float], Value] = lambda total, count: total
    """Makes the result of the joined numbers and of how many there were."""

    def start_of(self, element: Element) -> float:
        """The beginning for an element type: integers have no infinity, but a largest and a smallest number."""
        if not element.is_whole or math.isfinite(self.start):
            return self.start
        bits = element.bits - (element.kind == "int")
        return 2**bits - 1 if self.start > 0 else 2**bits - 2**element.bits


def _sum(total: Value, x: Value) -> Value:
    return total + x


SUM = Reducer(0.0, _sum)
MEAN = Reducer(0.0, _sum, finished=lambda total, count: total / count)
LARGEST = Reducer(-math.inf, larger)
SMALLEST = Reducer(math.inf, smaller)
SUM_OF_SIZES = Reducer(0.0, _sum, magnitude)
LENGTH = Reducer(0.0, _sum, lambda x: x * x, lambda total, count: sqrt(total))

REDUCERS: Mapping[str, Reducer] = {
    "ReduceSum": SUM,
    "ReduceMean": MEAN,
    "ReduceMax": LARGEST,
    "ReduceMin": SMALLEST,
    "ReduceProd": Reducer(1.0, lambda total, x: total * x),
    "ReduceL1": SUM_OF_SIZES,
    "ReduceL2": LENGTH,
    "ReduceSumSquare": Reducer(0.0, _sum, lambda x: x * x),
}
"""How each op over dimensions reduces."""
