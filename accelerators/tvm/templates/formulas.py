"""What each element-wise op of ONNX computes, as an expression on the numbers at one place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from accelerators.tvm.library import part
from accelerators.tvm.templates import numbers
from accelerators.tvm.templates.numbers import at_least, at_most, const
from graph.node import Node
from graph.types import TensorType

Number = Any
Formula = Callable[[Node, Sequence[Number]], Number]

FLOAT32 = frozenset(("float32",))
CHAINED = frozenset(("float32", "int32", "int64", "bool"))
INTEGERS = frozenset(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
NUMBERS = INTEGERS | {"float32", "float64"}

HIGHEST = 64
"""The highest power of whole numbers that is multiplied out."""

LATEST = 21
"""The version that a selector names, which is not told the graph's: formulas hold from version 7 on."""


def formula(node: Node, version: int) -> Formula | None:
    """How to compute the node's number from its inputs' numbers; None if this folder cannot say."""
    made = _FORMULAS.get(str(node.op)) if not node.domain and version >= 7 else None
    typed = all(isinstance(entry.type, TensorType) and entry.type.is_static for entry in (*node.reads, *node.outputs))
    if made is None or not typed:
        return None
    if node.op == "Pow" and is_whole_power(node) and not _is_known_power(node):
        return None
    if node.op == "BitCast" and _bits(_dtype(node.reads[0])) != _bits(_dtype(node[0])):
        return None
    read = FLOAT32
    for ops, dtypes in _DTYPES:
        if node.op in ops:
            read = dtypes
    if any(_dtype(entry) not in read for entry in node.reads) or _dtype(node[0]) not in NUMBERS | {"bool", "float16"}:
        return None
    return made


def _dtype(entry: Any) -> str:
    return entry.type.dtype


def _number(node: Node, name: str, default: float) -> Number:
    return const(float(node.attrs.get(name, default)))


def _choose(condition: Number, yes: Number, no: Number) -> Number:
    return part("tirx").Select(condition, yes, no)


def _clip(node: Node, x: Sequence[Number]) -> Number:
    low = x[1] if len(x) > 1 and x[1] is not None else _bound(node, "min")
    high = x[2] if len(x) > 2 and x[2] is not None else _bound(node, "max")
    made = x[0] if low is None else _held(node, 1, low, at_least(x[0], low))
    return made if high is None else _held(node, 2, high, at_most(made, high))


def _held(node: Node, place: int, bound: Number, made: Number) -> Number:
    """What is left within a bound; a bound that is no number makes everything none."""
    entry = node.inputs[place] if len(node.inputs) > place else None
    value = entry.node.value if entry is not None else float(node.attrs["min" if place == 1 else "max"])
    if value is not None and not math.isnan(float(value)):
        return made
    return _choose(bound <= _same(node, math.inf), made, bound)


def _bound(node: Node, name: str) -> Number | None:
    return const(float(node.attrs[name])) if name in node.attrs else None


def _same(node: Node, value: float) -> Number:
    """A constant of the element type that the node makes."""
    return part("tirx").const(value, _dtype(node[0]))


def _sign(node: Node, x: Sequence[Number]) -> Number:
    """What is no number stays so, and of the two zeros there is one."""
    one, zero = _same(node, 1.0), _same(node, 0.0)
    below = _choose(x[0] < zero, zero - one, _choose(x[0].equal(zero), zero, x[0]))
    return _choose(x[0] > zero, one, below)


def _gelu(node: Node, x: Sequence[Number]) -> Number:
    half = x[0] * const(0.5)
    if node.attrs.get("approximate", "none") == "tanh":
        inner = const(math.sqrt(2 / math.pi)) * (x[0] + const(0.044715) * x[0] * x[0] * x[0])
        return half * (const(1.0) + numbers.tanh(inner))
    return half * (const(1.0) + numbers.erf(x[0] * const(math.sqrt(0.5))))


def _elu(x: Number, alpha: Number) -> Number:
    return _choose(x > const(0.0), x, alpha * (numbers.exp_of_negative(at_most(x, 0.0)) - const(1.0)))


def _selu(node: Node, x: Sequence[Number]) -> Number:
    alpha, gamma = _number(node, "alpha", 1.6732632423543772), _number(node, "gamma", 1.0507009873554805)
    return gamma * _elu(x[0], alpha)


def _hard_sigmoid(x: Number, alpha: Number, beta: Number) -> Number:
    return at_least(at_most(alpha * x + beta, 1.0), 0.0)


def _fold(operation: Callable[[Number, Number], Number]) -> Formula:
    return lambda node, x: functools.reduce(operation, x)


def _cast(node: Node, x: Sequence[Number]) -> Number:
    made = node.output_types[0]
    assert isinstance(made, TensorType)
    if made.dtype == "bool":  # by Select, since `!=` of floats is false for what is no number
        tirx = part("tirx")
        zero = x[0].equal(tirx.const(0, _dtype(node.reads[0])))
        return _choose(zero, tirx.const(0, "bool"), tirx.const(1, "bool"))
    return x[0].astype(made.dtype)


def _relu(node: Node, x: Sequence[Number]) -> Number:
    return at_least(x[0], _same(node, 0.0))


def _bits(dtype: str) -> int:
    return int("".join(c for c in dtype if c.isdigit()) or 8)


def _shift(node: Node, x: Sequence[Number]) -> Number:
    """By a count that the type has no bits for, or a negative one, everything leaves: zero, or the sign to the right."""
    dtype = _dtype(node[0])
    const_of, width = part("tirx").const, _bits(dtype)
    zero = const_of(0, dtype)
    fits = x[1] < const_of(width, dtype)
    if dtype.startswith("int"):
        fits = part("tirx").all(fits, x[1] >= zero)
    count = _choose(fits, x[1], zero)
    if node.attrs.get("direction", "LEFT") in ("LEFT", b"LEFT"):
        return _choose(fits, x[0] << count, zero)
    return _choose(fits, x[0] >> count, _choose(x[0] < zero, const_of(-1, dtype), zero) if dtype.startswith("int") else zero)


def _power(node: Node, x: Sequence[Number]) -> Number:
    """Whole numbers to a known power as products, which count modulo the type's size; others by way of double precision."""
    dtype, exponent = _dtype(node[0]), node.reads[1].node.value
    if exponent is not None and exponent.size == 1 and dtype == "float32" and exponent.item() in (2, 3):
        return x[0] * x[0] if exponent.item() == 2 else x[0] * x[0] * x[0]
    if dtype in INTEGERS and _dtype(node.reads[1]) in INTEGERS:
        assert exponent is not None
        return _product(node, x[0], int(exponent.item()))
    middle = dtype if dtype.startswith("float") else "float64"
    return part("tirx").pow(x[0].astype(middle), x[1].astype(middle)).astype(dtype)


def is_whole_power(node: Node) -> bool:
    """Is it a whole number to a whole power?"""
    return _dtype(node[0]) in INTEGERS and _dtype(node.reads[1]) in INTEGERS


def _is_known_power(node: Node) -> bool:
    exponent = node.reads[1].node.value
    return exponent is not None and exponent.size == 1 and 0 <= exponent.item() <= HIGHEST


def _product(node: Node, x: Number, count: int) -> Number:
    """So many of them multiplied, by squares."""
    if count < 2:
        return x if count else _same(node, 1)
    half = numbers.let(_product(node, x, count // 2), lambda half: half * half)
    return half * x if count % 2 else half


def _better(node: Node, a: Number, b: Number, wins: Number) -> Number:
    """b where it wins or is not a number, else a."""
    made = _choose(wins, b, a)
    return made if _dtype(node[0]) in INTEGERS else _choose(b <= part("tirx").const(math.inf, _dtype(node[0])), made, b)


def _equal(node: Node, x: Sequence[Number]) -> Number:
    """Truth values as numbers: LLVM has no comparison of vectors of them that TVM would write."""
    if _dtype(node.reads[0]) == "bool":
        x = [value.astype("int8") for value in x]
    return x[0].equal(x[1])


def _is_infinite(node: Node, x: Sequence[Number]) -> Number:
    tirx, dtype = part("tirx"), _dtype(node.reads[0])
    above = x[0].equal(tirx.const(math.inf, dtype)) if node.attrs.get("detect_positive", 1) else tirx.const(0, "bool")
    below = x[0].equal(tirx.const(-math.inf, dtype)) if node.attrs.get("detect_negative", 1) else tirx.const(0, "bool")
    return tirx.any(above, below)


def _is_nan(node: Node, x: Sequence[Number]) -> Number:
    """What is not at most infinite."""
    tirx = part("tirx")
    yes, no = tirx.const(1, "bool"), tirx.const(0, "bool")
    return _choose(x[0] <= tirx.const(math.inf, _dtype(node.reads[0])), no, yes)


_FORMULAS: dict[str, Formula] = {
    "BitCast": lambda n, x: part("tirx").reinterpret(_dtype(n[0]), x[0]),
    "BitShift": _shift,
    "Pow": _power,
    "IsInf": _is_infinite,
    "IsNaN": _is_nan,
    "Add": lambda n, x: x[0] + x[1],
    "Sub": lambda n, x: x[0] - x[1],
    "Mul": lambda n, x: x[0] * x[1],
    "Div": lambda n, x: x[0] / x[1],
    "Neg": lambda n, x: const(0.0) - x[0],
    "Abs": lambda n, x: part("te").max(x[0], const(0.0) - x[0]),
    "Relu": _relu,
    "LeakyRelu": lambda n, x: _choose(x[0] > const(0.0), x[0], x[0] * _number(n, "alpha", 0.01)),
    "PRelu": lambda n, x: _choose(x[0] < _same(n, 0.0), x[0] * x[1], x[0]),
    "ThresholdedRelu": lambda n, x: _choose(x[0] > _number(n, "alpha", 1.0), x[0], const(0.0)),
    "Clip": _clip,
    "Sign": _sign,
    "Sqrt": lambda n, x: part("tirx").sqrt(x[0]),
    "Reciprocal": lambda n, x: const(1.0) / x[0],
    "Exp": lambda n, x: numbers.exp(x[0]),
    "Tanh": lambda n, x: numbers.tanh(x[0]),
    "Erf": lambda n, x: numbers.erf(x[0]),
    "Sigmoid": lambda n, x: numbers.sigmoid(x[0]),
    "Softplus": lambda n, x: numbers.softplus(x[0]),
    "Mish": lambda n, x: numbers.mish(x[0]),
    "Swish": lambda n, x: x[0] * numbers.sigmoid(x[0] * _number(n, "alpha", 1.0)),
    "HardSigmoid": lambda n, x: _hard_sigmoid(x[0], _number(n, "alpha", 0.2), _number(n, "beta", 0.5)),
    "HardSwish": lambda n, x: x[0] * _hard_sigmoid(x[0], const(1 / 6), const(0.5)),
    "Elu": lambda n, x: _elu(x[0], _number(n, "alpha", 1.0)),
    "Selu": _selu,
    "Gelu": _gelu,
    "Softsign": lambda n, x: x[0] / (const(1.0) + part("te").max(x[0], const(0.0) - x[0])),
    "Sum": _fold(lambda a, b: a + b),
    "Max": lambda n, x: functools.reduce(lambda a, b: _better(n, a, b, a < b), x),
    "Min": lambda n, x: functools.reduce(lambda a, b: _better(n, a, b, a > b), x),
    "Where": lambda n, x: _choose(x[0], x[1], x[2]),
    "And": lambda n, x: part("tirx").all(x[0], x[1]),
    "Or": lambda n, x: part("tirx").any(x[0], x[1]),
    "Not": lambda n, x: _choose(x[0], part("tirx").const(0, "bool"), part("tirx").const(1, "bool")),
    "Equal": _equal,
    "Less": lambda n, x: x[0] < x[1],
    "LessOrEqual": lambda n, x: x[0] <= x[1],
    "Greater": lambda n, x: x[0] > x[1],
    "GreaterOrEqual": lambda n, x: x[0] >= x[1],
    "Cast": _cast,
}

DEAR = frozenset("Exp Tanh Erf Sigmoid Softplus Mish Swish Elu Selu Gelu Softsign HardSwish Sqrt Reciprocal Div".split())
"""Ops whose result is kept in registers, to be computed once, instead of being worked into its reader."""

_DTYPES = (
    (frozenset("Where And Or Not Less LessOrEqual Greater GreaterOrEqual Equal".split()), CHAINED),
    (frozenset(("Cast",)), CHAINED | {"float16", "float64"}),
    (frozenset(("Clip", "PRelu", "Relu", "Sign")), frozenset(("float32", "float64"))),
    (frozenset(("Pow", "Max", "Min")), NUMBERS),
    (frozenset(("BitCast",)), NUMBERS),
    (frozenset(("BitShift",)), INTEGERS - {"uint32", "uint64"}),
    (frozenset(("IsInf", "IsNaN")), frozenset(("float32", "float64"))),
)
"""Ops that read other numbers than float32 here."""
