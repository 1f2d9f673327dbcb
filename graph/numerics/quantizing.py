"""QuantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from . import fallback
from .registry import differs, fails, numerics

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
    x: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
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
