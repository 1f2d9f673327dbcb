"""Element-wise ops of two inputs, with and without broadcasting.

MXNet's comparisons and logical ops return ones and zeros in the dtype of their inputs instead of booleans."""

from __future__ import annotations

from collections.abc import Mapping

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import register

ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}
COMPARISONS = {
    "equal": ("Equal", False), "not_equal": ("Equal", True), "greater": ("Greater", False), "lesser": ("Less", False),
    "greater_equal": ("GreaterOrEqual", False), "lesser_equal": ("LessOrEqual", False),
}
"""ONNX's comparison, and whether its result is negated."""
LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
EXTREMES = {"maximum": "Max", "minimum": "Min"}
ONNX = {
    **ARITHMETIC, **LOGICAL, **EXTREMES, "power": "Pow", **{what: op for what, (op, turned) in COMPARISONS.items() if not turned},
}
"""ONNX's op by the common name of all spellings of MXNet's op."""


def onnx_of(shared: Mapping[str, str]) -> dict[str, str]:
    """ONNX's op for each spelling, if a single op is equivalent; `shared` maps spellings to the common name."""
    return {spelling: ONNX[what] for spelling, what in shared.items() if what in ONNX}


def arithmetic(c: Conversion, what: str, a: NodeEntry, b: NodeEntry) -> NodeEntry:
    """Converts one of MXNet's binary ops, given by the common name of its spellings."""
    if what in ARITHMETIC:
        return c.result(ARITHMETIC[what], a, b)
    if what in EXTREMES:
        return c.result(EXTREMES[what], a, b)
    if what == "power":
        return c.result("Pow", a, b)
    if what == "hypot":
        squares = c.Add(c.Mul(a, a, name="left"), c.Mul(b, b, name="right"), name="squares")
        return c.result("Sqrt", squares)
    if what == "mod":
        return _mod(c, a, b)
    return _truth(c, what, a, b)


def _mod(c: Conversion, a: NodeEntry, b: NodeEntry) -> NodeEntry:
    """The remainder of a divided by b, with the sign of b; zero where b is zero."""
    if c.is_float(a):
        times = c.Floor(c.Div(a, b, name="quotient"), name="times")
        rest = c.Sub(a, c.Mul(times, b, name="whole"), name="rest")
    else:
        one = c.like("one", 1, b)
        divisor = c.Where(c.Equal(b, c.like("none", 0, b), name="no_divisor"), one, b, name="divisor")
        rest = c.Mod(a, divisor, name="rest")
    zero = c.like("zero", 0, a)
    return c.result("Where", c.Equal(b, zero, name="by_zero"), zero, rest)


def _truth(c: Conversion, what: str, a: NodeEntry, b: NodeEntry) -> NodeEntry:
    if what in LOGICAL:
        truth = c.op(LOGICAL[what], c.cast("left", a, "bool"), c.cast("right", b, "bool"), name="truth")
    else:
        op, turned = COMPARISONS[what]
        truth = c.op(op, a, b, name="truth")
        truth = c.Not(truth, name="otherwise") if turned else truth
    return c.result("Cast", truth, to=c.dtype(a))


SPELLINGS = {
    "add": "elemwise_add broadcast_add broadcast_plus _plus _Plus _add _grad_add",
    "sub": "elemwise_sub broadcast_sub broadcast_minus _minus _Minus _sub",
    "mul": "elemwise_mul broadcast_mul _mul _Mul",
    "div": "elemwise_div broadcast_div _div _Div",
    "mod": "broadcast_mod _mod _Mod",
    "power": "broadcast_power _power _Power pow",
    "maximum": "broadcast_maximum _maximum _Maximum",
    "minimum": "broadcast_minimum _minimum _Minimum",
    "hypot": "broadcast_hypot _hypot _Hypot",
    "equal": "broadcast_equal _equal _Equal",
    "not_equal": "broadcast_not_equal _not_equal _Not_Equal",
    "greater": "broadcast_greater _greater _Greater",
    "greater_equal": "broadcast_greater_equal _greater_equal _Greater_Equal",
    "lesser": "broadcast_lesser _lesser _Lesser",
    "lesser_equal": "broadcast_lesser_equal _lesser_equal _Lesser_Equal",
    "logical_and": "broadcast_logical_and _logical_and _Logical_And",
    "logical_or": "broadcast_logical_or _logical_or _Logical_Or",
    "logical_xor": "broadcast_logical_xor _logical_xor _Logical_Xor",
}
"""MXNet's names for each op."""

_WHAT = {name: what for what, names in SPELLINGS.items() for name in names.split()}


def _binary(c: Conversion) -> NodeEntry:
    return arithmetic(c, _WHAT[c.kind], *c.inputs)


register(" ".join(_WHAT), _binary, inputs=2, onnx=onnx_of(_WHAT))
