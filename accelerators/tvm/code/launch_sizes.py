"""Numbers of a launch that depend on sizes passed to the kernel when it is called.

They are kept as the formulas of TVM's host code, and evaluated for the sizes of each call."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.tvm.sizes.extent import Extent


@attrs.frozen(slots=True)
class Given:
    """A size: the kernel argument with this index."""

    number: int


@attrs.frozen(slots=True)
class Joined:
    """Two formulas and their operator."""

    operator: str
    """TVM's name of the operator."""
    left: Formula
    right: Formula


Formula = int | float | Extent | Given | Joined
"""A number or a formula for it. An extent is a symbolic size of the graph."""


def is_number(*formulas: Formula) -> bool:
    """True if all of them are numbers."""
    return all(isinstance(formula, (int, float)) for formula in formulas)


def joined(operator: str, left: Formula, right: Formula) -> Formula:
    """The operator applied to both formulas; a number if both are numbers."""
    if is_number(left, right):
        return ARITHMETIC[operator](left, right)  # type: ignore[no-any-return]
    return Joined(operator, left, right)


def with_arguments(formula: Formula, arguments: Sequence[Any]) -> Formula:
    """The formula with sizes of the graph in place of the kernel arguments."""
    if isinstance(formula, Given):
        return arguments[formula.number]  # type: ignore[no-any-return]
    if isinstance(formula, Joined):
        return joined(
            formula.operator, with_arguments(formula.left, arguments), with_arguments(formula.right, arguments)
        )
    return formula


def number_at(formula: Formula, sizes: Mapping[str, int]) -> int | float:
    """The formula's value for these values of the symbols."""
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
"""TVM's binary operators."""

CALLS: Mapping[str, Callable[..., Any]] = {
    "tirx.if_then_else": lambda condition, true, false: true if condition else false,
    "tirx.ceil": math.ceil, "tirx.floor": math.floor, "tirx.log2": math.log2,
    "tirx.shift_right": operator.rshift, "tirx.shift_left": operator.lshift,
}
"""TVM's functions that may occur in formulas."""
