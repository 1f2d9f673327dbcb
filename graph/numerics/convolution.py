"""Conv, ConvTranspose and their integer forms, as matrix products over all windows at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from partita.graph.numerics.registry import fails, numerics, slow
from partita.graph.numerics.windows import SAME, Window, extent, overlaid, split_padding, window


@numerics("Conv", widen=True, why=slow("because it adds up the taps of a kernel one after the other in Python"))
def conv(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, *, auto_pad: str, dilations: Sequence[int] | None = None,
    group: int, kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> np.ndarray:
    """Cross-correlation over any number of spatial axes."""
    geometry = window(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    if x.shape[1] != w.shape[1] * group:
        raise ValueError(
            f"Conv: {x.shape[1]} input channels, but the weight {w.shape} with group {group} takes "
            f"{w.shape[1] * group}; correct the weight or the group"
        )
    y = correlate(geometry.pad(x, 0), w, geometry, group)
    if b is not None:
        y += b.reshape(-1, *(1,) * (x.ndim - 2))
    return y


def correlate(padded: np.ndarray, w: np.ndarray, geometry: Window, group: int) -> np.ndarray:
    """The convolution of an already padded input, in the input's own type."""
    batch, out_channels = padded.shape[0], w.shape[0]
    if group == padded.shape[1] and group > 1:
        return _depthwise(padded, w, geometry)
    windows = geometry.view(padded)
    spatial = len(geometry.kernel)
    windows = windows.reshape(batch, group, w.shape[1], *windows.shape[2:])
    # Channels and taps in front, positions behind: each group is then one matrix product.
    order = (0, 1, 2, *range(3 + spatial, 3 + 2 * spatial), *range(3, 3 + spatial))
    taps = w.shape[1] * prod(geometry.kernel)
    columns = windows.transpose(order).reshape(batch, group, taps, prod(geometry.outputs))
    weights = w.reshape(group, out_channels // group, taps)
    return np.matmul(weights, columns).reshape(batch, out_channels, *geometry.outputs)


def _depthwise(padded: np.ndarray, w: np.ndarray, geometry: Window) -> np.ndarray:
    """One input channel per group: a sum over the taps, each an element-wise product over whole images."""
    multiplier = w.shape[0] // padded.shape[1]
    x = np.repeat(padded, multiplier, axis=1) if multiplier > 1 else padded
    y = np.zeros((*x.shape[:2], *geometry.outputs), x.dtype)
    weights = np.moveaxis(w[:, 0], 0, -1)
    for tap, seen in geometry.taps(x):
        y += seen * weights[tap].reshape(-1, *(1,) * len(tap))
    return y


@numerics("ConvInteger", why=slow("because it runs the same Python loops as its Conv"))
def conv_integer(
    x: np.ndarray, w: np.ndarray, x_zero_point: np.ndarray | None = None, w_zero_point: np.ndarray | None = None, *,
    auto_pad: str, dilations: Sequence[int] | None = None, group: int, kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> np.ndarray:
    """Convolution of 8-bit integers in int32, which wraps around."""
    geometry = window(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    return wrapped(integer_sums(x, x_zero_point, w, w_zero_point, geometry, group))


@numerics("QLinearConv", why=slow("because it runs the same Python loops as its Conv"))
def qlinear_conv(
    x: np.ndarray, x_scale: np.ndarray, x_zero_point: np.ndarray, w: np.ndarray, w_scale: np.ndarray,
    w_zero_point: np.ndarray, y_scale: np.ndarray, y_zero_point: np.ndarray, b: np.ndarray | None = None, *, auto_pad: str,
    dilations: Sequence[int] | None = None, group: int, kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> np.ndarray:
    """Quantized convolution: exact integers, then one multiplication and one rounding."""
    geometry = window(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    y = integer_sums(x, x_zero_point, w, w_zero_point, geometry, group)
    column = (-1, *(1,) * (x.ndim - 2))
    if b is not None:
        y += b.reshape(column)
    scaled = y * (x_scale * w_scale.astype(np.float64) / y_scale).reshape(column if w_scale.size > 1 else ())
    limits = np.iinfo(y_zero_point.dtype)
    return np.clip(np.rint(scaled) + y_zero_point, limits.min, limits.max).astype(y_zero_point.dtype)


def integer_sums(
    x: np.ndarray, x_point: np.ndarray | None, w: np.ndarray, w_point: np.ndarray | None, geometry: Window, group: int
) -> np.ndarray:
    """The exact convolution of integers less their zero points; padding has the value of the zero point."""
    return correlate(geometry.pad(centred(x, x_point, 1), 0), centred(w, w_point, 0), geometry, group)


def wrapped(sums: np.ndarray) -> np.ndarray:
    """Integral sums as int32 with wrap-around: a direct cast from float64 would depend on the processor when out of range."""
    return sums.astype(np.int64).astype(np.int32)


def centred(x: np.ndarray, zero_point: np.ndarray | None, axis: int) -> np.ndarray:
    """Integers less their zero point as float64, in which BLAS multiplies them exactly."""
    shifted = x.astype(np.float64)
    if zero_point is None:
        return shifted
    shape = [1] * x.ndim
    shape[axis] = -1
    return shifted - (zero_point.reshape(shape) if zero_point.size > 1 else zero_point.reshape(()))


@numerics("ConvTranspose", widen=True, why=fails("with groups"))
def conv_transpose(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, *, auto_pad: str, dilations: Sequence[int] | None = None,
    group: int, kernel_shape: Sequence[int] | None = None, output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> np.ndarray:
    """The gradient of a convolution: each input pixel adds its scaled kernel to the output."""
    kernel = w.shape[2:]
    n = len(kernel)
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    extra = output_padding or (0,) * n
    sizes = x.shape[2:]
    full = [(i - 1) * s + extent(k, d) for i, s, k, d in zip(sizes, strides, kernel, dilations)]
    before, after = _transposed_padding(sizes, full, strides, extra, auto_pad, output_shape, pads)
    batch, per_group, out_channels = x.shape[0], x.shape[1] // group, w.shape[1]

    # One product gives the contribution of every pixel through every tap; the taps are then added at their offsets.
    weights = w.reshape(group, per_group, out_channels * prod(kernel)).transpose(0, 2, 1)
    parts = np.matmul(weights, x.reshape(batch, group, per_group, prod(sizes)))
    parts = parts.reshape(batch, group * out_channels, *kernel, *sizes)
    y = overlaid(parts, strides, dilations, [f + e for f, e in zip(full, extra, strict=True)])
    y = _cropped(y, before, after)
    return y if b is None else y + b.reshape(-1, *(1,) * n)


def _transposed_padding(
    sizes: Sequence[int], full: Sequence[int], strides: Sequence[int], extra: Sequence[int], auto_pad: str,
    output_shape: Sequence[int] | None, pads: Sequence[int] | None,
) -> tuple[Sequence[int], Sequence[int]]:
    """Elements to crop at both ends; negative if the output shape is larger than the result."""
    n = len(sizes)
    if output_shape:
        wanted: Sequence[int] = list(output_shape)[-n:]
    elif auto_pad in SAME:
        wanted = [min(i * s, f + e) for i, s, f, e in zip(sizes, strides, full, extra)]
    else:
        pads = (0,) * (2 * n) if auto_pad == "VALID" or not pads else pads
        return pads[:n], pads[n:]
    totals = [f + e - o for f, e, o in zip(full, extra, wanted)]
    # The specification splits the other way round here: only SAME_UPPER puts the odd element at the end.
    return split_padding(totals, "SAME_UPPER" if auto_pad == "SAME_UPPER" else "SAME_LOWER")


def _cropped(y: np.ndarray, before: Sequence[int], after: Sequence[int]) -> np.ndarray:
    more = [(max(0, -b), max(0, -a)) for b, a in zip(before, after)]
    if np.any(more):
        y = np.pad(y, [(0, 0), (0, 0), *more])
    slices = [slice(max(0, b), size - max(0, a)) for b, a, size in zip(before, after, y.shape[2:])]
    return y[(slice(None), slice(None), *slices)]
