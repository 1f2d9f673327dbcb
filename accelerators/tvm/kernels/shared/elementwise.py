"""Formulas of ONNX's element-wise ops, as expressions on the elements at one position."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from partita.accelerators.tvm.bodies.quantized import DOMAIN as QUANTIZED
from partita.accelerators.tvm.kernels.language import (
    CIRCULAR,
    Element,
    Intrinsic,
    Operand,
    Value,
    boolean,
    ceil,
    constant,
    element_named,
    exactly,
    float32,
    float64,
    float_remainder,
    floor,
    int8,
    int32,
    log,
    maximum,
    minimum,
    named,
    nearest,
    power,
    quotient,
    remainder,
    select,
    sqrt,
    uint8,
)
from partita.accelerators.tvm.kernels.shared import functions
from partita.accelerators.tvm.kernels.shared.element_access import (
    FLOATS,
    HALVES,
    INTEGERS,
    NUMBERS,
    REALS,
    computed_element,
    rounded,
)
from partita.accelerators.tvm.kernels.shared.functions import at_least, at_most, larger, magnitude, smaller
from partita.accelerators.tvm.sizes.extent import sizes_of
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops

HALFWAY = 1.5 * 2**23
"""Adding it to a float32 of at most 2**22 either way rounds to an integer, which is in the low bits of the sum."""


def quantized(node: Node, x: Sequence[Any]) -> Value:
    """QuantizeLinear of an element, its scale and, if there is one, its zero point."""
    info, element = np.iinfo(node[0].type.dtype), element_named(node[0].type.dtype)  # type: ignore[union-attr]
    scaled: Value = x[0] if _scalar(node.inputs[1]) == 1 else x[0] / x[1]
    point = None if len(x) < 3 or x[2] is None else x[2].cast(int32)
    shift = constant(0.0, float32) if point is None else point.cast(float32)
    known = 0 if point is None else _scalar(node.inputs[2])
    low, high = (info.min - shift, info.max - shift) if known is None else (info.min - known, info.max - known)
    bits = (minimum(maximum(scaled, low), high) + HALFWAY).bits_as(int32)
    return (bits if point is None or known == 0 else bits + point).cast(element)


def dequantized(node: Node, x: Sequence[Any]) -> Value:
    """DequantizeLinear of an integer, its scale and, if there is one, its zero point. The product is rounded before anything is
    added to it, as in ONNX: a fused multiply-add would move ties."""
    whole = x[0].cast(int32)
    centred = whole if len(x) < 3 or x[2] is None or _scalar(node.inputs[2]) == 0 else whole - x[2].cast(int32)
    return exactly(centred.cast(float32) * x[1])


def shifted(node: Node, x: Sequence[Any]) -> Value:
    """A signed byte plus 128, as an unsigned byte."""
    number: Value = x[0].bits_as(uint8) ^ 128
    return number


def _scalar(entry: NodeEntry | None) -> float | None:
    """The value of a scalar constant."""
    value = None if entry is None else entry.node.value
    return value.item() if value is not None and value.size == 1 else None


QUANTIZED_FORMULAS: Mapping[str, Any] = {"QuantizeLinear": quantized, "DequantizeLinear": dequantized, "Shift": shifted}
"""The formulas of the ops in our domain of quantized values: rounded to nearest even as in ONNX, then saturated. Scales and zero
points are operands that are broadcast: `layouts/quantized/ops.py` gives them such shapes."""

Numbers = Sequence[Any]
"""An op's inputs at one position: values, and None for inputs that are left out."""

Formula = Callable[[Node, Numbers], Value]

ANY = NUMBERS | {"bool"}

HIGHEST = 64
"""The highest power of integers that is expanded into multiplications."""

LATEST = 21
"""The opset version that selectors assume, since they do not get the graph's; formulas hold from version 7 on."""


def formula(node: Node, version: int) -> Formula | None:
    """The formula that computes the node's result from its inputs; None if there is none."""
    if node.domain == QUANTIZED:
        return QUANTIZED_FORMULAS.get(str(node.op))
    is_sized = all(sizes_of(entry.type) is not None for entry in (*node.reads, *node.outputs))
    return formula_of_types(node, version) if is_sized else None


def formula_of_types(node: Node, version: int) -> Formula | None:
    """The formula for these element types, whatever the sizes; None if there is none."""
    if node.domain or version < 7 or node.op not in FORMULAS:
        return None
    taken, compute = FORMULAS[str(node.op)]
    if node.op == "Pow" and is_whole_power(node) and not _is_known_power(node):
        return None
    if node.op == "Mod" and not node.attrs.get("fmod", 0) and _element(node[0]).kind == "float":
        return None
    if node.op == "BitCast" and (_element(node.reads[0]).bits != _element(node[0]).bits or _dtype(node[0]) in HALVES):
        return None
    if any(_dtype(entry) not in taken for entry in node.reads) or _dtype(node[0]) not in ANY:
        return None
    return compute


def number_of(node: Node, compute: Formula, known: Mapping[NodeEntry, Value]) -> Value:
    """The node's result from the values `known` at the same position.

    Discontinuous ops read their inputs rounded to the stored type, so that they jump where ONNX does."""
    numbers: list[Value | None] = []
    for entry in node.inputs:
        number = None if entry is None else known[entry]
        if number is not None and entry is not None and entry.node.is_op and node.op in ops("stepped") and not _widens(node):
            number = rounded(number, _element(entry))
        numbers.append(number)
    return compute(node, numbers)


def _widens(node: Node) -> bool:
    """True for a Cast to a type that holds every computed value. It takes its input before rounding."""
    return node.op == "Cast" and _dtype(node[0]) in ("float32", "float64")


def _dtype(entry: Any) -> str:
    return str(entry.type.dtype)


def _element(entry: Any) -> Element:
    return element_named(_dtype(entry))


def _number(node: Node, name: str, default: float) -> float:
    return float(node.attrs.get(name, default))


def _clip(node: Node, x: Numbers) -> Value:
    low = x[1] if len(x) > 1 and x[1] is not None else _bound(node, "min")
    high = x[2] if len(x) > 2 and x[2] is not None else _bound(node, "max")
    clipped: Value = x[0]
    if low is not None:
        clipped = _held(node, 1, low, at_least(clipped, low))
    return clipped if high is None else _held(node, 2, high, at_most(clipped, high))


def _held(node: Node, slot: int, bound: Operand, clipped: Value) -> Value:
    """The clipped value; a bound that is NaN makes every result NaN."""
    entry = node.inputs[slot] if len(node.inputs) > slot else None
    value = entry.node.value if entry is not None else float(node.attrs["min" if slot == 1 else "max"])
    if value is not None and not math.isnan(float(value)):
        return clipped
    limit = bound if isinstance(bound, Value) else constant(bound, clipped.type.element)
    return select(limit <= math.inf, clipped, limit)


def _bound(node: Node, name: str) -> float | None:
    return float(node.attrs[name]) if name in node.attrs else None


def _sign(node: Node, x: Numbers) -> Value:
    """The sign of NaN is NaN, and that of both zeros is the positive zero."""
    zero = constant(0.0, x[0].type.element)
    below = select(x[0] < zero, zero - 1.0, select(x[0].equals(zero), zero, x[0]))
    return select(x[0] > zero, 1.0, below)


def _gelu(node: Node, x: Numbers) -> Value:
    half = x[0] * 0.5
    if node.attrs.get("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x[0] + 0.044715 * x[0] * x[0] * x[0])
        return half * (1.0 + functions.tanh(inner))
    return half * (1.0 + functions.erf(x[0] * math.sqrt(0.5)))


def _elu(x: Value, alpha: float) -> Value:
    return select(x > 0.0, x, alpha * (functions.exp_of_negative(at_most(x, 0.0)) - 1.0))


def _selu(node: Node, x: Numbers) -> Value:
    alpha, gamma = _number(node, "alpha", 1.6732632423543772), _number(node, "gamma", 1.0507009873554805)
    return gamma * _elu(x[0], alpha)


def _hard_sigmoid(x: Value, alpha: float, beta: float) -> Value:
    return at_least(at_most(alpha * x + beta, 1.0), 0.0)


def _fold(operation: Callable[[Value, Value], Value]) -> Formula:
    return lambda node, x: functools.reduce(operation, x)


def _best_of(operation: Callable[[Value, Value], Value]) -> Formula:
    """Folds the inputs by an operation that uses its arguments twice; the result so far is computed once."""

    def once(best: Value, x: Value) -> Value:
        return named(best, lambda best: operation(best, x))

    return lambda node, x: functools.reduce(once, x[2:], operation(x[0], x[1])) if len(x) > 1 else x[0]


def _cast(node: Node, x: Numbers) -> Value:
    element = _element(node[0])
    if element is boolean:  # by select, since `!=` of floats is false for NaN
        return select(x[0].equals(0), constant(0, boolean), constant(1, boolean))
    return rounded(x[0], element)


def _shift(node: Node, x: Numbers) -> Value:
    """A shift by a negative count, or by all bits or more, yields zero, or the sign for a signed right shift."""
    element = _element(node[0])
    # TVM's simplifier subtracts the sides of a comparison by an ordering, which is wrong for unsigned integers.
    fits = (x[1] >> (element.bits.bit_length() - 1)).equals(0)
    count = select(fits, x[1], 0)
    if node.attrs.get("direction", "LEFT") in ("LEFT", b"LEFT"):
        return select(fits, x[0] << count, 0)
    return select(fits, x[0] >> count, select(x[0] < 0, constant(-1, element), 0) if element.kind == "int" else 0)


def _power(node: Node, x: Numbers) -> Value:
    """Integers to a constant power as multiplications, modulo the type's size; other powers in double precision."""
    element, exponent = computed_element(node[0]), node.reads[1].node.value
    if exponent is not None and exponent.size == 1 and element is float32 and exponent.item() in (2, 3):
        return x[0] * x[0] if exponent.item() == 2 else x[0] * x[0] * x[0]
    if is_whole_power(node):
        assert exponent is not None
        return _product(x[0], int(exponent.item()))
    middle = element if element.kind == "float" else float64
    return power(x[0].cast(middle), x[1].cast(middle)).cast(element)


def is_whole_power(node: Node) -> bool:
    """True for an integer to an integer power."""
    return _dtype(node[0]) in INTEGERS and _dtype(node.reads[1]) in INTEGERS


def _is_known_power(node: Node) -> bool:
    exponent = node.reads[1].node.value
    return exponent is not None and exponent.size == 1 and 0 <= exponent.item() <= HIGHEST


def _product(x: Value, count: int) -> Value:
    """x to the power `count`, by repeated squaring."""
    if count < 2:
        return x if count else constant(1, x.type.element)
    half = named(_product(x, count // 2), lambda half: half * half)
    return half * x if count % 2 else half


def _quotient(node: Node, x: Numbers) -> Value:
    """Integers are divided as in numpy: division by zero yields zero, and the smallest integer divided by -1 stays what it is.
    The processor would end the process in both cases."""
    a, b = x
    if not a.type.element.is_whole:
        return a / b
    by_zero = select(b.equals(0), 0, quotient(a, _divisor(b)))
    return by_zero if a.type.element.kind == "uint" else select(b.equals(-1), 0 - a, by_zero)


def _divisor(b: Value) -> Value:
    """A safe integer divisor: 1 in place of 0 and of -1."""
    is_safe = b.differs(0) if b.type.element.kind == "uint" else b.differs(0) & b.differs(-1)
    return select(is_safe, b, 1)


def _remainder(node: Node, x: Numbers) -> Value:
    """The remainder has the divisor's sign, or with `fmod` the dividend's. Integers modulo zero yield zero."""
    a, b = x
    if not a.type.element.is_whole:
        return float_remainder(a, b)
    rest: Value = remainder(a, _divisor(b))
    if a.type.element.kind == "uint":
        return select(b.equals(0), 0, rest)
    if not node.attrs.get("fmod", 0):
        rest = named(rest, lambda rest: select(((rest < 0) & (b > 0)) | ((rest > 0) & (b < 0)), rest + b, rest))
    return select(b.differs(0) & b.differs(-1), rest, 0)


def _equal(node: Node, x: Numbers) -> Value:
    """Booleans are compared as integers: LLVM has no comparison of boolean vectors that TVM would emit.

    A float is compared with itself by another test, since TVM folds NaN == NaN to true."""
    first, second = (value.cast(int8) for value in x) if _dtype(node.reads[0]) == "bool" else x
    if node.reads[0] == node.reads[1] and first.type.element.kind == "float":
        return first <= math.inf
    equal: Value = first.equals(second)
    return equal


def _is_infinite(node: Node, x: Numbers) -> Value:
    never = constant(0, boolean)
    above = x[0].equals(math.inf) if node.attrs.get("detect_positive", 1) else never
    below = x[0].equals(-math.inf) if node.attrs.get("detect_negative", 1) else never
    return above | below


def _is_nan(node: Node, x: Numbers) -> Value:
    """Only NaN is not ≤ infinity."""
    return select(x[0] <= math.inf, constant(0, boolean), constant(1, boolean))


def _log(node: Node, x: Numbers) -> Value:
    return functions.log(x[0]) if x[0].type.element is float32 else log(x[0])


def _celu(node: Node, x: Numbers) -> Value:
    alpha = _number(node, "alpha", 1.0)
    return at_least(x[0], 0.0) + at_most(alpha * (functions.exp(x[0] * (1 / alpha)) - 1.0), 0.0)


def _shrink(node: Node, x: Numbers) -> Value:
    bias, limit = _number(node, "bias", 0.0), _number(node, "lambd", 0.5)
    return select(x[0] < -limit, x[0] + bias, select(x[0] > limit, x[0] - bias, 0.0))


def _mean(node: Node, x: Numbers) -> Value:
    total: Value = functools.reduce(operator.add, x)
    return total / float(len(x)) if len(x) > 1 else total


def _different(node: Node, x: Numbers) -> Value:
    different: Value = x[0].cast(int8).differs(x[1].cast(int8))
    return different


def _turned(node: Node, x: Numbers) -> Value:
    element = _element(node[0])
    turned: Value = x[0] ^ (-1 if element.kind == "int" else 2**element.bits - 1)
    return turned


def _called(intrinsic: Intrinsic) -> Formula:
    return lambda node, x: intrinsic(x[0])


FORMULAS: dict[str, tuple[frozenset[str], Formula]] = {
    "BitCast": (NUMBERS - HALVES, lambda n, x: x[0].bits_as(_element(n[0]))),
    "BitShift": (INTEGERS, _shift),
    "Pow": (NUMBERS, _power),
    "IsInf": (FLOATS, _is_infinite),
    "IsNaN": (FLOATS, _is_nan),
    "Add": (NUMBERS, lambda n, x: x[0] + x[1]),
    "Sub": (NUMBERS, lambda n, x: x[0] - x[1]),
    "Mul": (NUMBERS, lambda n, x: x[0] * x[1]),
    "Div": (NUMBERS, _quotient),
    "Mod": (NUMBERS, _remainder),
    "Neg": (NUMBERS, lambda n, x: -1 * x[0]),
    "Abs": (FLOATS, lambda n, x: magnitude(x[0])),
    "Relu": (FLOATS, lambda n, x: at_least(x[0], 0.0)),
    "LeakyRelu": (FLOATS, lambda n, x: select(x[0] > 0.0, x[0], x[0] * _number(n, "alpha", 0.01))),
    "PRelu": (FLOATS, lambda n, x: select(x[0] < 0.0, x[0] * x[1], x[0])),
    "ThresholdedRelu": (FLOATS, lambda n, x: select(x[0] > _number(n, "alpha", 1.0), x[0], 0.0)),
    "Clip": (FLOATS, _clip),
    "Sign": (FLOATS, _sign),
    "Sqrt": (FLOATS, lambda n, x: sqrt(x[0])),
    "Reciprocal": (FLOATS, lambda n, x: 1.0 / x[0]),
    "Exp": (REALS, lambda n, x: functions.exp(x[0])),
    "Tanh": (REALS, lambda n, x: functions.tanh(x[0])),
    "Erf": (REALS, lambda n, x: functions.erf(x[0])),
    "Sigmoid": (REALS, lambda n, x: functions.sigmoid(x[0])),
    "Softplus": (REALS, lambda n, x: functions.softplus(x[0])),
    "Mish": (REALS, lambda n, x: functions.mish(x[0])),
    "Swish": (REALS, lambda n, x: x[0] * functions.sigmoid(x[0] * _number(n, "alpha", 1.0))),
    "HardSigmoid": (FLOATS, lambda n, x: _hard_sigmoid(x[0], _number(n, "alpha", 0.2), _number(n, "beta", 0.5))),
    "HardSwish": (FLOATS, lambda n, x: x[0] * _hard_sigmoid(x[0], 1 / 6, 0.5)),
    "Elu": (REALS, lambda n, x: _elu(x[0], _number(n, "alpha", 1.0))),
    "Selu": (REALS, _selu),
    "Gelu": (REALS, _gelu),
    "Softsign": (FLOATS, lambda n, x: x[0] / (1.0 + magnitude(x[0]))),
    "Sum": (NUMBERS, _fold(lambda a, b: a + b)),
    "Max": (NUMBERS, _best_of(larger)),
    "Min": (NUMBERS, _best_of(smaller)),
    "Where": (ANY, lambda n, x: select(x[0], x[1], x[2])),
    "And": (ANY, lambda n, x: x[0] & x[1]),
    "Or": (ANY, lambda n, x: x[0] | x[1]),
    "Not": (ANY, lambda n, x: select(x[0], constant(0, boolean), constant(1, boolean))),
    "Equal": (ANY, _equal),
    "Less": (ANY, lambda n, x: x[0] < x[1]),
    "LessOrEqual": (ANY, lambda n, x: x[0] <= x[1]),
    "Greater": (ANY, lambda n, x: x[0] > x[1]),
    "GreaterOrEqual": (ANY, lambda n, x: x[0] >= x[1]),
    "Cast": (ANY, _cast),
    "Log": (FLOATS, _log),
    "Celu": (REALS, _celu),
    "Shrink": (FLOATS, _shrink),
    "Mean": (FLOATS, _mean),
    "Xor": (frozenset(("bool",)), _different),
    "Floor": (FLOATS, lambda n, x: floor(x[0])),
    "Ceil": (FLOATS, lambda n, x: ceil(x[0])),
    "Round": (FLOATS, lambda n, x: nearest(x[0])),
    "BitwiseAnd": (INTEGERS, lambda n, x: x[0] & x[1]),
    "BitwiseOr": (INTEGERS, lambda n, x: x[0] | x[1]),
    "BitwiseXor": (INTEGERS, lambda n, x: x[0] ^ x[1]),
    "BitwiseNot": (INTEGERS, _turned),
    **{name.capitalize(): (FLOATS, _called(intrinsic)) for name, intrinsic in CIRCULAR.items()},
}
"""The element types that each element-wise op reads here, and its formula."""

ELEMENTWISE = frozenset(FORMULAS)
"""The element-wise ops that kernels compute."""

