"""Reducers for kernels that TVM schedules."""

from __future__ import annotations

import math
from typing import Any

from accelerators.tvm.machine.library import part

FLOATS = frozenset(("float16", "float32", "float64"))
"""The element types of floating point that they take."""


def extreme_of(dtype: str, largest: bool) -> Any:
    """TVM's reducer to the largest or smallest number; NaN wins."""
    te, tirx = part("te"), part("tirx")

    def join(a: Any, b: Any) -> Any:
        better = tirx.Select(a > b if largest else a < b, a, b)
        return tirx.Select(a <= tirx.const(math.inf, dtype), better, a)

    return te.comm_reducer(join, lambda kind: tirx.const(-math.inf if largest else math.inf, kind))
