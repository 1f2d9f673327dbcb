"""TVM's ONNX importer for a body: a Relax function whose calls are all TensorIR.

NaN propagates in its kernels as ONNX defines it. TVM's maximum and minimum are comparisons that drop NaN, in activations,
bounds, pools and reductions; after a kernel is scheduled (schedules look for them) each is replaced by a form that keeps NaN.
TVM's sign of NaN is zero, and its cast to bool is false."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.shared.element_access import FLOATS
from partita.accelerators.tvm.machine.library import compiling, part, structural_map, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.tvm_errors import Failure, quiet, refused
from partita.graph.graph import Graph
from partita.graph.types import Array, TensorType
from partita.graph.writers.onnx.model import to_model


def import_body(graph: Graph) -> Any:
    """Module with the importer's Relax function; CompileError if TVM cannot import the graph."""
    _require_tensors(graph)
    importer = part("relax.frontend.onnx.onnx_frontend").ONNXGraphImporter
    with compiling.lock, quiet(), refused("importer"):
        model = to_model(graph)
        opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
        importing = importer({}, {}, sanitize=False)
        try:
            return importing.from_onnx(model.graph, opset)
        except Failure:
            _close(importing.bb)
            raise


def import_fixed(body: Body, machine: Machine) -> Any:
    """The body's module, all operators as TensorIR functions; CompileError if TVM's result differs from the declared type."""
    legal = legalize(import_body(body.graph), machine.target)
    difference = type_difference(legal["main"].ret_ty, body.graph)
    if difference is not None:
        raise CompileError(difference)
    return legal


def _require_tensors(graph: Graph) -> None:
    """CompileError for sequences: the importer does not terminate on a sequence of one tensor."""
    for node in graph.nodes:
        for entry in node.outputs:
            if entry.type is not None and not isinstance(entry.type, TensorType):
                where = f"node {node.name!r} ({node.op})"
                raise CompileError(f"{entry.name!r} is {entry.type}: kernels take tensors only", where=where)


def _close(builder: Any) -> None:
    """End the block that a failed import leaves open; otherwise TVM prints a warning."""
    with contextlib.suppress(Failure):
        builder._end_block()


def legalize(module: Any, target: Any) -> Any:
    """The module with every operator as a TensorIR function, fused by TVM."""
    relax = part("relax")
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.LegalizeOps({"relax.take": _take, "relax.sign": sign, "relax.astype": cast}),
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    with compiling.lock, quiet(), refused("operator lowering"), target:
        legal = tvm().transform.Sequential(passes)(with_known_indices(module))
    _check_lowered(legal)
    return legal


def _take(builder: Any, call: Any) -> Any:
    """TVM's own lowering, except that indices are clamped: its mode "fast" prints a warning each time."""
    attributes = call.attrs
    mode = "clip" if attributes.mode == "fast" else attributes.mode
    return builder.call_te(part("topi").take, call.args[0], call.args[1], attributes.axis, mode=mode)


def _check_lowered(module: Any) -> None:
    """CompileError if anything is left that needs more of the runtime than kernels."""
    relax = part("relax")
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call) and isinstance(call.op, tvm().ir.Op) and call.op.name not in _LOWERED:
                raise CompileError(f"TVM does not lower its operator {call.op.name}")
            if isinstance(call, relax.If) or not hasattr(binding, "value"):
                raise CompileError("TVM's importer makes control flow of it")


_LOWERED = frozenset({"relax.call_tir", "relax.call_dps_packed"})


def type_difference(types: Any, graph: Graph) -> str | None:
    """Difference between the type of TVM's result and those of the graph's outputs, in words; None if there is none."""
    relax = part("relax")
    fields = list(types.fields) if isinstance(types, relax.TupleType) else [types]
    for entry, output_type in zip(graph.outputs, fields, strict=False):
        wanted = entry.type
        if not isinstance(wanted, TensorType):
            continue  # no declared type
        try:
            shape = tuple(int(d) for d in output_type.shape)
        except (AttributeError, TypeError):
            return "TVM does not know the sizes of its result"
        if shape != wanted.shape or str(output_type.dtype) != wanted.dtype:
            return f"TVM makes {output_type.dtype}{list(shape)} of it instead of {wanted}"
    return None if len(fields) >= len(graph.outputs) else "TVM makes fewer outputs of it"


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
