"""torch ops that are converted to ONNX here, because the conversion of torch's exporter differs from torch's results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

WITH_ATTENTION = 23
"""The first opset for which the exporter writes ONNX's Attention, which gives zeros to a fully masked query, as torch does."""


def translations(opset: int | None) -> dict[Any, Callable[..., Any]]:
    """The conversion function of each torch op: a `custom_translation_table` of torch's exporter."""
    import torch

    aten = torch.ops.aten
    table: dict[Any, Callable[..., Any]] = {
        aten.any.default: is_any,
        aten.any.dim: is_any,
        aten.any.dims: is_any,
        aten.atan2.default: atan2,
        aten.copy.default: copied,
        aten.div.Tensor_mode: divide,
        aten.floor_divide.default: floor_divide,
        aten.heaviside.default: heaviside,
        aten.log_sigmoid.default: log_sigmoid,
        aten.logit.default: logit,
        aten.signbit.default: signbit,
    }
    if opset is None or opset < WITH_ATTENTION:
        table[aten.scaled_dot_product_attention.default] = attention
    return table


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention with zeros for fully masked queries. NaN and infinities give torch's results: zero times them.

    Such a query is given all keys, and its result is replaced after the product with the values, so that a device may match
    products and softmax as one attention."""
    from onnxscript import ir
    from onnxscript.function_libs.torch_lib.ops.nn import aten_scaled_dot_product_attention as written

    op = _ops()
    if attn_mask is None:
        return written(query, key, value, None, dropout_p, is_causal, scale, enable_gqa)
    hidden, seen = _number(-math.inf, query), _number(0.0, query)
    if attn_mask.dtype == ir.DataType.BOOL:
        attn_mask = op.Where(attn_mask, seen, hidden)
    sees_none = op.Equal(op.ReduceMax(attn_mask, op.Constant(value_ints=[-1]), keepdims=1), hidden)
    mixed = written(query, key, value, op.Where(sees_none, seen, attn_mask), dropout_p, False, scale, enable_gqa)
    return op.Where(sees_none, op.Sub(mixed, mixed), mixed)


def divide(self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """Division, rounded or not. Integers are divided as integers, since float32 does not hold all of them."""
    from onnxscript import ir

    op = _ops()
    is_whole = self.dtype.is_integer()
    if rounding_mode == "floor":
        return floor_divide(self, other)
    if rounding_mode is None and is_whole:
        self, other = (op.Cast(number, to=ir.DataType.FLOAT) for number in (self, other))
    quotient = op.Div(self, other)
    if rounding_mode is None or is_whole:
        return quotient
    return op.Where(op.Less(quotient, _number(0.0, self)), op.Ceil(quotient), op.Floor(quotient))


def floor_divide(self: Any, other: Any) -> Any:
    """Division rounded down."""
    from onnxscript import ir

    op = _ops()
    if self.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        wide = _floats_divided(op.Cast(self, to=ir.DataType.FLOAT), op.Cast(other, to=ir.DataType.FLOAT))
        return op.CastLike(wide, self)
    if self.dtype.is_floating_point():
        return _floats_divided(self, other)
    quotient = op.Div(self, other)
    rest = op.Sub(self, op.Mul(quotient, other))
    return op.Sub(quotient, op.CastLike(_points_apart(rest, other), self))


def _floats_divided(self: Any, other: Any) -> Any:
    """The quotient (x - x mod y) / y, as in Python: 1.5 // 0.3 is 4, though 1.5 / 0.3 rounds to 5."""
    op = _ops()
    zero, rest = _number(0.0, self), op.Mod(self, other, fmod=1)
    exact = op.Sub(op.Div(op.Sub(self, rest), other), op.CastLike(_points_apart(rest, other), self))
    down = op.Floor(exact)
    down = op.Add(down, op.CastLike(op.Greater(op.Sub(exact, down), _number(0.5, self)), self))
    quotient = op.Div(self, other)
    down = op.Where(op.Equal(exact, zero), op.Mul(quotient, zero), down)
    return op.Where(op.Equal(other, zero), quotient, down)


def _points_apart(rest: Any, other: Any) -> Any:
    """True where a remainder is not zero and its sign differs from the divisor's."""
    op = _ops()
    zero = _number(0.0, rest)
    negative = op.And(op.Less(rest, zero), op.Greater(other, zero))
    return op.Or(negative, op.And(op.Greater(rest, zero), op.Less(other, zero)))


def is_any(self: Any, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Any:
    """True where an element is not zero; False for none."""
    from onnxscript import ir

    op = _ops()
    numbers = op.Cast(op.Cast(self, to=ir.DataType.BOOL), to=ir.DataType.INT32)
    if len(self.shape):
        dims = [dim] if isinstance(dim, int) else [*(dim or range(len(self.shape)))]
        numbers = op.ReduceMax(numbers, op.Constant(value_ints=dims), keepdims=int(keepdim))
    return op.Greater(numbers, op.CastLike(op.Constant(value_int=0), numbers))


def copied(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """The source in the element type and shape of the tensor that it is copied to."""
    op = _ops()
    return op.Expand(op.CastLike(src, self), op.Shape(self))


def atan2(self: Any, other: Any) -> Any:
    """The angle of (other, self), correct for signed zeros, infinities and NaN."""
    op = _ops()
    zero, pi = _number(0.0, self), _number(math.pi, self)
    y, x = op.Abs(self), op.Abs(other)
    slope = op.Where(op.Equal(y, x), _number(1.0, self), op.Div(y, x))
    slope = op.Where(op.Equal(op.Add(y, x), zero), zero, slope)
    angle = op.Atan(slope)
    angle = op.Where(signbit(other), op.Sub(pi, angle), angle)
    return op.Where(signbit(self), op.Neg(angle), angle)


def signbit(self: Any) -> Any:
    """True for negative numbers and -0.0."""
    from onnxscript import ir

    op = _ops()
    if self.dtype == ir.DataType.BOOL:
        return op.And(self, op.Not(self))
    zero = _number(0.0, self)
    is_negative = op.Less(self, zero)
    if not self.dtype.is_floating_point():
        return is_negative
    return op.Or(is_negative, op.And(op.Equal(self, zero), op.Less(op.Reciprocal(self), zero)))


def heaviside(self: Any, values: Any) -> Any:
    """1 above 0, `values` at 0, else 0, also for NaN."""
    op = _ops()
    zero = _number(0.0, self)
    return op.Where(op.Equal(self, zero), values, op.Cast(op.Greater(self, zero), to=self.dtype))


def log_sigmoid(self: Any) -> Any:
    """The logarithm of a sigmoid, also where the sigmoid itself underflows to zero."""
    op = _ops()
    rest = op.Log(op.Add(op.Exp(op.Neg(op.Abs(self))), _number(1.0, self)))
    return op.Sub(op.Min(self, _number(0.0, self)), rest)


def logit(self: Any, eps: float | None = None) -> Any:
    """log(x / (1 - x)) of x clipped to [eps, 1 - eps]. NaN stays NaN."""
    op = _ops()
    one = _number(1.0, self)
    if eps is not None:
        least, most = _number(eps, self), _number(1.0 - eps, self)
        no_more = op.Where(op.Greater(self, most), most, self)
        self = op.Where(op.Less(self, least), least, no_more)
    return op.Log(op.Div(self, op.Sub(one, self)))


def _number(number: float, like: Any) -> Any:
    """A number in the element type of `like`."""
    op = _ops()
    return op.CastLike(op.Constant(value_float=number), like)


def _ops() -> Any:
    """ONNX's ops as functions."""
    from onnxscript import opset18

    return opset18
