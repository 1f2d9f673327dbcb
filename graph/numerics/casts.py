"""Cast and CastLike between all types of ONNX, including strings."""

from __future__ import annotations

import numpy as np

from .halves import is_float
from .registry import differs, fails, numerics

_NAMES = {
    "FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "STRING": 8, "BOOL": 9,
    "FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13, "COMPLEX64": 14, "COMPLEX128": 15,
}
_STRING = 8


@numerics("Cast", until=5, why=fails("because it does not know types by name"))
def cast_by_name(x: np.ndarray, *, to: str) -> np.ndarray:
    """Cast below opset 6, where the type is a name."""
    return cast(x, to=_NAMES[to.upper()])


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
        x = np.array(numbers, np.uint64 if is_whole else np.float64 if is_float(dtype) else dtype).reshape(x.shape)
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
