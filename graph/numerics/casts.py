"""Cast and CastLike between all types of ONNX, including strings."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from partita.graph.numerics import fallback
from partita.graph.numerics.registry import differs, fails, numerics
from partita.graph.types import BY_ONNX_NAME, ELEMENT_TYPES, HALVES, dtype_name


def is_half(x: Any) -> bool:
    """True for an array of float16 or bfloat16."""
    return isinstance(x, (np.ndarray, np.generic)) and x.dtype.name in HALVES


_STRING = ELEMENT_TYPES["string"].number


@numerics("Cast", until=5, why=fails("because it does not know types by name"))
def cast_by_name(x: np.ndarray, *, to: str) -> np.ndarray:
    """Cast below opset 6, where the type is a name."""
    return cast(x, to=ELEMENT_TYPES[BY_ONNX_NAME[to.lower()]].number)


@numerics("Cast", since=6, why=differs("in strings, which must be Python objects"))
def cast(x: np.ndarray, *, to: int, saturate: int = 1, round_mode: str = "up") -> np.ndarray:
    """Casts to the type with this number in TensorProto; 8-bit floats saturate by default."""
    from onnx import helper, numpy_helper

    if to == _STRING:
        return _text(x)
    dtype = helper.tensor_dtype_to_np_dtype(to)
    if x.dtype.kind in "OSU":
        is_whole = dtype.kind in "iub"
        numbers = [_number(str(text), is_whole) for text in x.ravel()]
        is_float = ELEMENT_TYPES[dtype_name(dtype)].kind == "float"
        x = np.array(numbers, np.uint64 if is_whole else np.float64 if is_float else dtype).reshape(x.shape)
    if dtype.name == "float8_e8m0fnu":
        return numpy_helper.to_float8e8m0(x, bool(saturate), round_mode).astype(dtype)
    if dtype.name.startswith("float8") and saturate:
        return numpy_helper.saturate_cast(x, dtype)
    return x.astype(dtype)


@numerics("CastLike", why=fails("from strings to bfloat16"))
def cast_like(x: np.ndarray, like: np.ndarray, *, saturate: int = 1, round_mode: str = "up") -> np.ndarray:
    """Casts to the type of the second input."""
    from onnx import helper

    to = _STRING if like.dtype.kind in "OSU" else helper.np_dtype_to_tensor_dtype(like.dtype)
    return cast(x, to=to, saturate=saturate, round_mode=round_mode)


def _number(text: str, is_whole: bool) -> float:
    """The number that a text represents; integers are truncated, and taken modulo 2^64."""
    try:
        if "_" in text:  # Python's own.
            raise ValueError
        number = float(text)
        if not is_whole:
            return number
        whole = int(text) if text.strip().lstrip("+-").isdecimal() else int(number)
        return whole % (1 << 64)
    except (ValueError, OverflowError):
        raise ValueError(f"the text {text!r:.40} stands for no {'whole ' * is_whole}number") from None


def _text(x: np.ndarray) -> np.ndarray:
    """Numbers as the shortest text that parses to them; True is 1."""
    if x.dtype.kind == "O":
        return x
    return (x.astype(np.int8) if x.dtype == bool else x).astype(np.str_).astype(object)


NEWEST = 25
"""The last opset that changed the op; its attributes include all earlier ones."""


@numerics("DynamicQuantizeLinear", why=fails("for a tensor without elements"))
def quantize_by_range(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """x as uint8 with scale and zero point, from the range of x and 0; for an empty x they are 1 and 0, as in onnxruntime."""
    if x.size:
        return fallback.run("DynamicQuantizeLinear", [x], {}, "", NEWEST, 3)
    return np.empty(x.shape, np.uint8), np.array(1, np.float32), np.array(0, np.uint8)


@numerics("QuantizeLinear", why=differs("where a quotient is infinite, NaN, or too large for 32 bits, which wrap around"))
def quantize_linear(
    x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None, *, axis: int = 1, saturate: int = 1,
    block_size: int = 0, output_dtype: int = 0, precision: int = 0,
) -> np.ndarray:
    """x / scale, rounded half to even, plus the zero point, saturated; NaN becomes the smallest integer."""
    from onnx.helper import tensor_dtype_to_np_dtype
    from onnx.reference.ops._quant_utils import reshape_input

    dtype = tensor_dtype_to_np_dtype(output_dtype or 2) if zero_point is None else zero_point.dtype
    limits = _limits(dtype)
    if limits is None:
        given = [x, scale] if zero_point is None else [x, scale, zero_point]
        attrs = {"axis": axis, "saturate": saturate, "block_size": block_size}
        attrs |= {"output_dtype": output_dtype, "precision": precision}
        return fallback.run("QuantizeLinear", given, attrs, "", NEWEST, 1)[0]
    divisor = reshape_input(scale, x.shape, axis, block_size)
    if precision:
        kind = tensor_dtype_to_np_dtype(precision)
        x, divisor = x.astype(kind), divisor.astype(kind)
    whole = np.rint((x / divisor).astype(np.float64))
    if zero_point is not None:
        whole += reshape_input(zero_point, x.shape, axis, block_size).astype(np.float64)
    low, high = limits
    return np.clip(np.where(np.isnan(whole), low, whole), low, high).astype(dtype)


def _limits(dtype: np.dtype) -> tuple[int, int] | None:
    """The range of an integer type; None for floating types."""
    try:
        info = ml_dtypes.iinfo(dtype)
    except ValueError:
        return None
    return int(info.min), int(info.max)
