"""Ops that interpolate between pixels: GridSample, DeformConv, RoiAlign."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from partita.graph.numerics import fallback
from partita.graph.numerics.registry import differs, fails, numerics, slow
from partita.graph.numerics.resize import cubic_kernel
from partita.graph.numerics.windows import Window, window
from partita.graph.types import Array


@numerics("GridSample", widen=True, why=fails("for the names of modes before opset 20"))
def grid_sample(x: np.ndarray, grid: np.ndarray, *, align_corners: int, mode: str, padding_mode: str) -> np.ndarray:
    """Samples at the positions of the grid, which range from -1 to 1 between the borders, last axis first."""
    sizes = np.array(x.shape[2:])
    low, high = (0 * sizes, sizes - 1) if align_corners else (0 * sizes - 0.5, sizes - 0.5)
    positions = ((grid[..., ::-1] + 1) / 2 * (high - low) + low).astype(grid.dtype)
    if mode == "nearest":
        positions = np.rint(positions)
    if padding_mode == "border" and "cubic" not in mode:  # for cubic modes `_sample` clips the pixels' indices instead
        positions = positions.clip(0, sizes - 1)
    elif padding_mode == "reflection":
        positions = _reflected(positions, low, high)
    flat = positions.reshape(len(x), -1, len(sizes))
    y = np.stack([_sample(image, at, mode, padding_mode, low, high) for image, at in zip(x, flat, strict=True)])
    return y.reshape(*x.shape[:2], *grid.shape[1:-1]).astype(x.dtype)


def _sample(
    image: np.ndarray, positions: np.ndarray, mode: str = "linear", padding: str = "zeros", low: np.ndarray | int = 0,
    high: np.ndarray | int = 0,
) -> np.ndarray:
    """The image (C, *sizes) sampled at positions (P, axes): (C, P), each a weighted sum of neighbouring pixels."""
    sizes = np.array(image.shape[1:])
    taps = {"nearest": range(1), "linear": range(2), "bilinear": range(2)}.get(mode, range(-1, 3))
    base = np.floor(positions)
    y = np.zeros((image.shape[0], len(positions)), image.dtype)
    for tap in product(taps, repeat=len(sizes)):
        pixels = base + np.array(tap)
        distance = np.abs(positions - pixels)
        weights = cubic_kernel(distance, -0.75) if len(taps) == 4 else 1 - distance
        weight = weights.prod(axis=1)
        is_there = ((pixels >= 0) & (pixels < sizes)).all(axis=1) | (padding != "zeros")
        if padding == "reflection":
            pixels = np.trunc(_reflected(pixels, low, high))
        indices = np.nan_to_num(pixels, nan=0.0).clip(0, sizes - 1).astype(np.int64)
        y += np.where(is_there, image[(slice(None), *indices.T)], 0) * weight.astype(image.dtype)
    if np.issubdtype(y.dtype, np.inexact):
        y[:, np.isnan(positions).any(axis=1)] = np.nan
    return y


def _reflected(positions: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """Positions reflected at the borders until they are inside."""
    span = np.maximum(high - low, np.finfo(np.float32).tiny)
    offset = np.abs(positions - low) % (2 * span)
    return low + np.where(offset > span, 2 * span - offset, offset)


@numerics("DeformConv", widen=True, why=slow("because it visits one pixel after the other in Python"))
def deform_conv(
    x: np.ndarray, w: np.ndarray, offset: np.ndarray, b: np.ndarray | None = None, mask: np.ndarray | None = None, *,
    dilations: Sequence[int] | None = None, group: int, kernel_shape: Sequence[int] | None = None, offset_group: int,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> np.ndarray:
    """Convolution with taps at learned offsets and weighted by a mask."""
    geometry = window(x.shape[2:], w.shape[2:], strides, dilations, pads, "NOTSET")
    n, taps = len(geometry.kernel), int(np.prod(geometry.kernel))
    moved = offset.reshape(len(x), offset_group, taps, n, *geometry.outputs) + _regular_positions(geometry)
    positions = np.moveaxis(moved, 3, -1).reshape(len(x), offset_group, -1, n).astype(x.dtype)
    channels = x.reshape(len(x), offset_group, -1, *x.shape[2:])
    seen = np.stack(
        [[_sample(c, p) for c, p in zip(*pair, strict=True)] for pair in zip(channels, positions, strict=True)]
    )
    if mask is not None:
        seen = seen * mask.reshape(len(x), offset_group, 1, -1)
    columns = seen.reshape(len(x), group, w.shape[1] * taps, int(np.prod(geometry.outputs)))
    y = np.matmul(w.reshape(group, -1, w.shape[1] * taps), columns)
    y = y.reshape(len(x), w.shape[0], *geometry.outputs)
    return y if b is None else y + b.reshape(-1, *(1,) * n)


def _regular_positions(g: Window) -> np.ndarray:
    """The input position of each tap of each window without offsets: (taps, axes, *outputs)."""
    n = len(g.kernel)
    column = (n, *(1,) * n)
    taps = np.indices(g.kernel).reshape(n, -1).T * np.array(g.dilations)
    starts = np.indices(g.outputs) * np.reshape(g.strides, column) - np.reshape(g.before, column)
    return taps.reshape(-1, *column) + starts


@numerics("RoiAlign", widen=True, why=differs("at the borders, and below opset 16"))
def roi_align(
    x: np.ndarray, rois: np.ndarray, images: np.ndarray, *, coordinate_transformation_mode: str = "output_half_pixel",
    mode: str, output_height: int, output_width: int, sampling_ratio: int, spatial_scale: float,
) -> np.ndarray:
    """Bins of each region, averaged over sampled points; opset 16 added the shift by half a pixel."""
    if rois.ndim != 2 or rois.shape[1] != 4:
        raise ValueError(f"a region has four numbers, and these have the shape {rois.shape}")
    if images.size and not (images.min() >= 0 and images.max() < len(x)):
        raise ValueError(f"a region is of image {images.min() if images.min() < 0 else images.max()}, and there are {len(x)}")
    if len(images) != len(rois):
        raise ValueError(f"there are {len(rois)} regions, and the images of {len(images)}")
    if mode == "max":
        attrs = {
            "coordinate_transformation_mode": coordinate_transformation_mode,
            "mode": mode,
            "output_height": output_height,
            "output_width": output_width,
            "sampling_ratio": sampling_ratio,
            "spatial_scale": spatial_scale,
        }
        return fallback.run("RoiAlign", [x, rois, images], attrs, "", 16, 1)[0]
    half = coordinate_transformation_mode == "half_pixel"
    y = np.zeros((len(rois), x.shape[1], output_height, output_width), x.dtype)
    for i, (left, top, right, bottom) in enumerate(rois * x.dtype.type(spatial_scale) - (0.5 if half else 0)):
        lines = _averaged(x[images[i]], _points(top, bottom, output_height, sampling_ratio, half))
        y[i] = _averaged(lines.swapaxes(1, 2), _points(left, right, output_width, sampling_ratio, half)).swapaxes(1, 2)
    return y


def _points(start: float, end: float, count: int, ratio: int, half: bool) -> np.ndarray:
    """The sampled positions of each of ``count`` bins on one axis: (count, points). An empty region has none."""
    extent = end - start if half else max(end - start, 1.0)
    points = ratio if ratio > 0 else max(int(np.ceil(extent / count)), 0)
    return (start + (np.arange(count * points) + 0.5) * extent / (count * points)).reshape(count, points)


def _averaged(image: np.ndarray, bins: np.ndarray) -> np.ndarray:
    """The means of a (C, length, N) image at the positions of each bin: (C, bins, N); 0 for a bin without positions.

    A position reads its two neighbouring pixels only, even with weight 0. One outside reads zeros."""
    length = image.shape[1]
    means = [np.zeros((image.shape[0], 0, image.shape[2]), image.dtype)]
    for positions in bins:
        inside = positions.clip(0, length - 1)
        low = np.floor(np.nan_to_num(inside)).astype(np.int64)
        part = (inside - low).astype(np.float32)[:, None]
        values = image[:, low] * (1 - part) + image[:, np.minimum(low + 1, length - 1)] * part
        outside = ((positions < -1) | (positions > length))[:, None]
        sums = np.where(outside, 0, values).sum(axis=1, keepdims=True, dtype=image.dtype)
        means.append(sums / image.dtype.type(max(1, len(positions))))
    return np.concatenate(means, axis=1)


@numerics("NonMaxSuppression", why=fails("where the limits are scalars"))
def non_max_suppression(
    boxes: Array, scores: Array, max_output_boxes_per_class: Array | None = None, iou_threshold: Array | None = None,
    score_threshold: Array | None = None, *, center_point_box: int,
) -> Array:
    """Per class, selects the boxes with the best scores whose overlap with every better box is within the threshold; the
    result has rows of batch, class, box. (The limits may be scalars, which ONNX's own reference rejects.)"""
    most = int(_number(max_output_boxes_per_class, 0))
    limit = float(_number(iou_threshold, 0))
    rows = []
    for batch, of_batch in enumerate(scores):
        corners = _corners(boxes[batch].astype(np.float32), center_point_box)
        for kind, scores_of_class in enumerate(of_batch):
            kept: list[int] = []
            for box in np.argsort(-scores_of_class, kind="stable"):
                if len(kept) >= most or (score_threshold is not None and not scores_of_class[box] > _number(score_threshold, 0)):
                    break
                if all(_overlap(corners[box], corners[other]) <= limit for other in kept):
                    kept.append(int(box))
            rows += [(batch, kind, box) for box in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def _number(value: Array | None, default: float) -> float:
    return default if value is None or not value.size else value.reshape(-1)[0]


def _corners(boxes: Array, centered: int) -> Array:
    """Both ends on each axis, the lower first."""
    if centered:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return np.concatenate([middle - half, middle + half], axis=1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


def _overlap(one: Array, other: Array) -> float:
    """Intersection over union of two boxes."""
    sides = np.maximum(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0)
    shared = float(sides[0] * sides[1])
    areas = [float((box[2] - box[0]) * (box[3] - box[1])) for box in (one, other)]
    if min(areas) <= 0 or shared <= 0:
        return 0.0
    return shared / (areas[0] + areas[1] - shared)
