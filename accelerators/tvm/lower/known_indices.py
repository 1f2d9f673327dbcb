"""Indices that are known are counted from the front by numpy.

TVM's importer writes each index of a Gather as a choice: itself, or that many from the end. Where all of it is constant, TVM's
own pass makes machine code for each step of the choice and runs it, which takes longer than the kernel of the body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from partita.accelerators.tvm.machine.library import part
from partita.graph.types import Array

_STEPS: Mapping[str, Callable[..., Any]] = {
    "relax.less": np.less,
    "relax.add": np.add,
    "relax.where": np.where,
    "relax.astype": lambda value: value,
}
"""What the steps of the choice compute; a result has the type that TVM states."""


def with_known_indices(module: Any) -> Any:
    """The importer's module with these steps computed. Linear."""
    rewriting = _rewriting()(module)
    for var, function in module.functions.items():
        if isinstance(function, part("relax").Function):
            rewriting.builder_.update_func(var, rewriting.visit_expr(function))
    return rewriting.builder_.get()


@cache
def _rewriting() -> Any:
    """TVM's class of rewritings, with a rule for calls."""
    functor = part("relax.expr_functor")
    base: Any = functor.PyExprMutator

    @functor.mutator
    class Rewriting(base):
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            value = _computed(call, self.lookup_binding)
            return call if value is None else part("relax").const(value, value.dtype.name)

    return Rewriting


def _computed(call: Any, bound: Callable[[Any], Any]) -> Array | None:
    """The call's value, if it is a step that reads constants alone; None if not. `bound` gives what a variable stands for."""
    name, dtype = getattr(call.op, "name", ""), str(getattr(call.ty, "dtype", ""))
    if not dtype.startswith(("int", "bool")):
        return None
    if name == "relax.shape_to_tensor":
        sizes = _sizes(_origin(call.args[0], bound))
        return None if sizes is None else np.array(sizes, dtype)
    values: list[Any] = [_constant(argument, bound) for argument in call.args]
    if any(value is None for value in values):
        return None
    if name == "relax.take":
        return _taken(call, values[0], values[1], dtype)
    return np.asarray(_STEPS[name](*values)).astype(dtype) if name in _STEPS else None


def _taken(call: Any, numbers: Any, position: Any, dtype: str) -> Array | None:
    """One of some numbers in a row, at a position that may be counted from their end."""
    if call.attrs.mode != "wrap" or numbers.ndim != 1:
        return None
    return np.take(numbers, position, mode="wrap").astype(dtype)


def _origin(expression: Any, bound: Callable[[Any], Any]) -> Any:
    """What a variable stands for; any other expression itself."""
    while isinstance(expression, part("relax").Var):
        meant = bound(expression)
        if meant is None:
            return expression
        expression = meant
    return expression


def _constant(expression: Any, bound: Callable[[Any], Any]) -> Array | None:
    """The number that an expression is; None if it is none, or not one of whole numbers."""
    origin = _origin(expression, bound)
    if not isinstance(origin, part("ir.expr").GenericConst):
        return None
    value: Array = origin.value.numpy()
    return value if value.dtype.kind in "ib" else None


def _sizes(call: Any) -> list[int] | None:
    """The sizes that a call asks for, if they are known."""
    if getattr(getattr(call, "op", None), "name", "") != "relax.shape_of":
        return None
    sizes = getattr(getattr(call.args[0].ty, "shape", None), "values", None)
    if sizes is None or not all(isinstance(size, part("tirx").IntImm) for size in sizes):
        return None
    return [int(size) for size in sizes]
