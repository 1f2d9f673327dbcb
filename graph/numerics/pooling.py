"""Pooling over windows, over regions of interest, and over all positions.

The windows are taken tap by tap: each position in the kernel is one strided view of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from partita.graph.numerics.registry import EVERYWHERE, HALVES, absent, differs, numerics, slow
from partita.graph.numerics.windows import Window, window


@numerics("MaxPool", widen=True, wants=("n_outputs",), why=differs("in the shape where windows pad by themselves"))
def max_pool(
    x: np.ndarray, *, kernel_shape: Sequence[int], n_outputs: int, auto_pad: str, ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> tuple[np.ndarray, ...]:
    """The maximum of each window and, as a second output, its index in the whole input."""
    geometry = window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    padded = geometry.pad(x, _least(x.dtype))
    if n_outputs > 1:
        return _max_with_indices(padded, x.shape, geometry, storage_order)
    y = np.full((*x.shape[:2], *geometry.outputs), _least(x.dtype), x.dtype)
    for _, seen in geometry.taps(padded):
        np.maximum(y, seen, out=y)
    return (y,)


def _max_with_indices(
    padded: np.ndarray, shape: tuple[int, ...], geometry: Window, storage_order: int
) -> tuple[np.ndarray, np.ndarray]:
    """Maxima and their indices; the first in row-major order wins a tie, and padding never wins."""
    best = np.full((*shape[:2], *geometry.outputs), _least(padded.dtype), padded.dtype)
    where = np.zeros(best.shape, np.int64)
    unset = np.ones(best.shape, bool)
    sizes = shape[2:]
    positions = np.arange(int(np.prod(sizes))).reshape(sizes, order="F" if storage_order else "C")
    inside = geometry.pad(np.ones((1, 1, *sizes), bool), False)
    marked = geometry.pad(positions[None, None], 0)
    for (_, seen), (_, indices), (_, real) in zip(geometry.taps(padded), geometry.taps(marked), geometry.taps(inside)):
        better = ((seen > best) | unset) & real
        np.copyto(best, seen, where=better)
        np.copyto(where, indices, where=better)
        unset &= ~better
    images = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *(1,) * len(sizes)) * positions.size
    return best, where + images


@numerics("MaxUnpool", why=slow("because it puts one number after the other into its place in Python"))
def max_unpool(
    x: np.ndarray, indices: np.ndarray, output_shape: np.ndarray | None = None, *, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> np.ndarray:
    """Scatters elements to their indices among zeros in the image that was pooled; ``output_shape`` may enlarge it."""
    n = len(kernel_shape)
    strides, pads = strides or (1,) * n, pads or (0,) * (2 * n)
    sizes = [
        (size - 1) * stride - before - after + kernel
        for size, stride, before, after, kernel in zip(x.shape[2:], strides, pads[:n], pads[n:], kernel_shape)
    ]
    image = np.zeros((*x.shape[:2], *sizes), x.dtype)
    wrong = indices[(indices < 0) | (indices >= image.size)]
    if wrong.size:
        raise ValueError(f"index {wrong[0]} is outside of {image.size} numbers")
    image.reshape(-1)[indices.reshape(-1)] = x.reshape(-1)
    if output_shape is None:
        return image
    larger = np.zeros(tuple(output_shape), x.dtype)
    larger[tuple(slice(size) for size in image.shape)] = image
    return larger


@numerics("AveragePool", widen=True, why=slow("because it visits one window after the other in Python"))
def average_pool(
    x: np.ndarray, *, kernel_shape: Sequence[int], auto_pad: str, ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> np.ndarray:
    """The mean of each window; explicit padding counts with ``count_include_pad``, padding added by ceil mode never does."""
    geometry = window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    sizes = x.shape[2:]
    if count_include_pad:
        padded = [sum(parts) for parts in zip(sizes, geometry.before, geometry.after, strict=True)]
        counted = np.ones((1, 1, *padded), x.dtype)
        bare = replace(geometry, before=(0,) * len(kernel_shape), after=(0,) * len(kernel_shape))
        counts = _sum(bare, bare.pad(counted, 0))
    else:
        counts = _sum(geometry, geometry.pad(np.ones((1, 1, *sizes), x.dtype), 0))
    return _sum(geometry, geometry.pad(x, 0)) / np.maximum(counts, 1)


@numerics("LpPool", widen=True, why=differs("with padding"))
def lp_pool(
    x: np.ndarray, *, kernel_shape: Sequence[int], auto_pad: str, ceil_mode: int = 0, dilations: Sequence[int] | None = None,
    p: float, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> np.ndarray:
    """The p-norm of each window."""
    geometry = window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return (_sum(geometry, geometry.pad(np.abs(x) ** p, 0)) ** (1 / p)).astype(x.dtype)


@numerics("GlobalAveragePool", widen=True, why=differs(HALVES))
def global_average_pool(x: np.ndarray) -> np.ndarray:
    """The mean over all positions."""
    return x.mean(axis=tuple(range(2, x.ndim)), keepdims=True)


@numerics("GlobalMaxPool", why=slow(EVERYWHERE))
def global_max_pool(x: np.ndarray) -> np.ndarray:
    """The maximum over all positions."""
    return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


@numerics("GlobalLpPool", widen=True, why=absent())
def global_lp_pool(x: np.ndarray, *, p: float) -> np.ndarray:
    """The p-norm over all positions."""
    return ((np.abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)).astype(x.dtype)


@numerics("MaxRoiPool", widen=True, why=absent())
def max_roi_pool(x: np.ndarray, rois: np.ndarray, *, pooled_shape: Sequence[int], spatial_scale: float) -> np.ndarray:
    """The maximum in each bin of each region [image, x1, y1, x2, y2]; an empty bin is 0."""
    y = np.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
    for region, (image, *corners) in enumerate(rois):
        left, top, right, bottom = (int(_half_away(c * spatial_scale)) for c in corners)
        rows = _bins(top, max(bottom - top + 1, 1), pooled_shape[0], x.shape[2])
        columns = _bins(left, max(right - left + 1, 1), pooled_shape[1], x.shape[3])
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                cell = x[int(image), :, row, column]
                if cell.size:
                    y[region, :, i, j] = cell.max(axis=(1, 2))
    return y


def _bins(start: int, length: int, count: int, limit: int) -> list[slice]:
    """``count`` overlapping bins over [start, start + length), clipped to the image."""
    edges = [(start + i * length // count, start + -(-(i + 1) * length // count)) for i in range(count)]
    return [slice(min(max(low, 0), limit), min(max(high, 0), limit)) for low, high in edges]


def _half_away(value: float) -> float:
    """Rounds halves away from zero, as C does."""
    return float(np.copysign(np.floor(np.abs(value) + 0.5), value))


def _sum(geometry: Window, padded: np.ndarray) -> np.ndarray:
    """The sum of each window."""
    total = np.zeros((*padded.shape[:2], *geometry.outputs), padded.dtype)
    for _, seen in geometry.taps(padded):
        total += seen
    return total


def _least(dtype: np.dtype) -> float:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)
