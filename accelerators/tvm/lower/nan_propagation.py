"""NaN propagation in the kernels of TVM's importer, as ONNX defines it.

TVM's maximum and minimum are comparisons that drop NaN, in activations, bounds, pools and reductions. After a kernel is scheduled
(schedules look for them) each is replaced by a form that keeps NaN. TVM's sign of NaN is zero, and its cast to bool is false."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from partita.accelerators.tvm.machine.library import part, structural_map

FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))

ACROSS_THREADS = frozenset(("dlight.GEMV", "dlight.Reduction", "dlight.GeneralReduction"))
"""Schedules that reduce across a GPU's threads. Their kernels keep TVM's maxima, because its code generation looks for them: NaN
may be dropped there."""


def carrying(function: Any, holds_bfloat16: bool) -> Any:
    """The TensorIR function with maxima and minima of floats that propagate NaN. Linear.

    Let-bindings evaluate the operands once. But TVM's pass that lowers bfloat16 to integers does not look into these, so the
    operands are duplicated if there is bfloat16."""
    tirx = part("tirx")

    def chosen(largest: bool) -> Callable[[Any], Any]:
        return lambda one: _chosen(one, largest, not holds_bfloat16)

    return structural_map(function, [(tirx.Max, chosen(True)), (tirx.Min, chosen(False))])


def _chosen(one: Any, largest: bool, is_named: bool) -> Any:
    tirx, dtype = part("tirx"), str(one.ty.dtype)
    if dtype not in FLOATS:
        return one

    def best(a: Any, b: Any) -> Any:
        better = tirx.Select(a > b if largest else a < b, a, b)
        return tirx.Select(a <= tirx.const(math.inf, dtype), better, a)

    if not is_named:
        return best(one.a, one.b)
    a, b = tirx.Var("a", dtype), tirx.Var("b", dtype)
    return tirx.Let(a, one.a, tirx.Let(b, one.b, best(a, b)))


def sign(builder: Any, call: Any) -> Any:
    """Lowering of a sign that returns NaN for NaN."""
    tirx = part("tirx")

    def computed(x: Any) -> Any:
        zero, one = tirx.const(0, x.dtype), tirx.const(1, x.dtype)

        def at(*indices: Any) -> Any:
            low = tirx.Select(x(*indices) < zero, zero - one, tirx.Select(x(*indices).equal(zero), zero, x(*indices)))
            return tirx.Select(x(*indices) > zero, one, low)

        return part("te").compute(x.shape, at, name="sign")

    return builder.call_te(computed, call.args[0])


def cast(builder: Any, call: Any) -> Any:
    """Lowering of a cast where every value other than zero, also NaN, becomes true."""
    tirx, dtype = part("tirx"), call.attrs.dtype

    def truth(x: Any) -> Any:
        yes, no = tirx.const(1, "bool"), tirx.const(0, "bool")
        return part("te").compute(x.shape, lambda *indices: tirx.Select(x(*indices).equal(tirx.const(0, x.dtype)), no, yes))

    def computed(x: Any) -> Any:
        return truth(x) if str(dtype) == "bool" and str(x.dtype) in FLOATS else part("topi").cast(x, dtype)

    return builder.call_te(computed, call.args[0])
