"""NaN comes through the kernels that TVM's importer makes, as it does through ONNX's definitions.

TVM's maximum and minimum are comparisons that drop it, wherever they come from: activations, bounds, pools, reductions. After a
kernel is scheduled (a schedule looks for them) each becomes one that keeps it. TVM's sign makes zero of it, its cast to bool
falsehood."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

from partita.accelerators.tvm.machine.library import part, tvm

FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))

ACROSS_THREADS = frozenset(("dlight.GEMV", "dlight.Reduction", "dlight.GeneralReduction"))
"""Schedules that reduce across a GPU's threads. TVM's code generation looks for the maxima in their kernels, which stay as they
are: there NaN may be dropped."""


def carrying(function: Any, holds_bfloat16: bool) -> Any:
    """The TensorIR function with maxima and minima of floats that carry NaN. Linear.

    Their operands get names, so that they are computed once; but TVM's pass that makes whole numbers of bfloat16 does not look
    into such names, and where there are any the operands are written out again."""
    tirx = part("tirx")
    tvm()  # this import finds TVM's library before tvm_ffi is asked
    changed = importlib.import_module("tvm_ffi").structural_map

    def chosen(largest: bool) -> Callable[[Any], Any]:
        return lambda one: _chosen(one, largest, not holds_bfloat16)

    return changed(function, [(tirx.Max, chosen(True)), (tirx.Min, chosen(False))])


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
    """The Relax call of a sign as a kernel."""
    tirx = part("tirx")

    def computed(x: Any) -> Any:
        zero, one = tirx.const(0, x.dtype), tirx.const(1, x.dtype)

        def at(*indices: Any) -> Any:
            low = tirx.Select(x(*indices) < zero, zero - one, tirx.Select(x(*indices).equal(zero), zero, x(*indices)))
            return tirx.Select(x(*indices) > zero, one, low)

        return part("te").compute(x.shape, at, name="sign")

    return builder.call_te(computed, call.args[0])


def cast(builder: Any, call: Any) -> Any:
    """The Relax call of a cast as a kernel: whatever is not zero is true."""
    tirx, dtype = part("tirx"), call.attrs.dtype

    def truth(x: Any) -> Any:
        yes, no = tirx.const(1, "bool"), tirx.const(0, "bool")
        return part("te").compute(x.shape, lambda *indices: tirx.Select(x(*indices).equal(tirx.const(0, x.dtype)), no, yes))

    def computed(x: Any) -> Any:
        return truth(x) if str(dtype) == "bool" and str(x.dtype) in FLOATS else part("topi").cast(x, dtype)

    return builder.call_te(computed, call.args[0])
