"""Numbers of a launch that follow from sizes which the kernel is given when it is called.

They are kept as TVM's host code computes them, and worked out for the sizes of a call."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.tvm.sizes.extent import Extent


@attrs.frozen(slots=True)
class Given:
    """The argument of this number, which is a size."""

    number: int


@attrs.frozen(slots=True)
class Joined:
    """Two formulas, and what joins them."""

    operator: str
    """TVM's name for it."""
    left: Formula
    right: Formula


Formula = int | float | Extent | Given | Joined
"""A number, known or not. An extent stands for a size as the graph says it."""


def is_number(*formulas: Formula) -> bool:
    """Are all of them known?"""
    return all(isinstance(formula, (int, float)) for formula in formulas)


def joined(operator: str, left: Formula, right: Formula) -> Formula:
    """Both joined: a number where both are numbers."""
    if is_number(left, right):
        return ARITHMETIC[operator](left, right)  # type: ignore[no-any-return]
    return Joined(operator, left, right)


def with_arguments(formula: Formula, arguments: Sequence[Any]) -> Formula:
    """The formula with sizes as the graph says them in the place of the arguments of these numbers."""
    if isinstance(formula, Given):
        return arguments[formula.number]  # type: ignore[no-any-return]
    if isinstance(formula, Joined):
        return joined(
            formula.operator, with_arguments(formula.left, arguments), with_arguments(formula.right, arguments)
        )
    return formula


def number_at(formula: Formula, sizes: Mapping[str, int]) -> int | float:
    """The number for a call, given each symbol's value."""
    if isinstance(formula, Extent):
        return formula.at(sizes)
    if isinstance(formula, Joined):
        left, right = number_at(formula.left, sizes), number_at(formula.right, sizes)
        return ARITHMETIC[formula.operator](left, right)  # type: ignore[no-any-return]
    assert isinstance(formula, (int, float))
    return formula


ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "FloorDiv": operator.floordiv, "FloorMod": operator.mod,
    "Div": lambda a, b: int(a / b) if isinstance(a, int) else a / b, "Mod": math.fmod, "Min": min, "Max": max,
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
    "LShift": operator.lshift, "RShift": operator.rshift, "BitwiseAnd": operator.and_, "BitwiseOr": operator.or_,
    "And": lambda a, b: bool(a and b), "Or": lambda a, b: bool(a or b),
}
"""What TVM's expressions of two parts compute."""

CALLS: Mapping[str, Callable[..., Any]] = {
    "tirx.if_then_else": lambda condition, true, false: true if condition else false,
    "tirx.ceil": math.ceil, "tirx.floor": math.floor, "tirx.log2": math.log2,
    "tirx.shift_right": operator.rshift, "tirx.shift_left": operator.lshift,
}
"""What the calls among them compute."""
