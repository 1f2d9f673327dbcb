"""Constant folding of known indices with numpy.

TVM's importer writes each index of a Gather as a choice: the index, or the index plus the size. If all of it is constant, TVM's
own pass compiles and runs machine code for each step of the choice, which takes longer than the kernel of the body."""

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
"""numpy functions for the steps of the choice; each result is cast to the type that TVM declares."""


def with_known_indices(module: Any) -> Any:
    """The importer's module with these steps folded. Linear."""
    rewriting = _rewriting()(module)
    for var, function in module.functions.items():
        if isinstance(function, part("relax").Function):
            rewriting.builder_.update_func(var, rewriting.visit_expr(function))
    return rewriting.builder_.get()


@cache
def _rewriting() -> Any:
    """TVM's rewriter class with a rule for calls."""
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
    """Value of the call if it is such a step and reads only constants; else None. `bound` returns the value of a variable."""
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
    """One element of a vector, at a position that may be negative."""
    if call.attrs.mode != "wrap" or numbers.ndim != 1:
        return None
    return np.take(numbers, position, mode="wrap").astype(dtype)


def _origin(expression: Any, bound: Callable[[Any], Any]) -> Any:
    """Value of a variable, followed through other variables; any other expression itself."""
    while isinstance(expression, part("relax").Var):
        meant = bound(expression)
        if meant is None:
            return expression
        expression = meant
    return expression


def _constant(expression: Any, bound: Callable[[Any], Any]) -> Array | None:
    """Value of a constant integer or bool expression; None for others."""
    origin = _origin(expression, bound)
    if not isinstance(origin, part("ir.expr").GenericConst):
        return None
    value: Array = origin.value.numpy()
    return value if value.dtype.kind in "ib" else None


def _sizes(call: Any) -> list[int] | None:
    """Sizes that a call of shape_of returns, if they are static."""
    if getattr(getattr(call, "op", None), "name", "") != "relax.shape_of":
        return None
    sizes = getattr(getattr(call.args[0].ty, "shape", None), "values", None)
    if sizes is None or not all(isinstance(size, part("tirx").IntImm) for size in sizes):
        return None
    return [int(size) for size in sizes]
