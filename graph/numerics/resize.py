"""Resize and Upsample: one axis after the other, each output a weighted sum of a few inputs.

Coordinates are computed in float32, as in engines: the rounding decides which pixel is nearest at exact halves and integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partita.graph.numerics.registry import differs, fails, numerics

TIE = np.float32(1e-6)
"""Positions within this distance of the middle of two pixels count as equally near to both."""


@dataclass(frozen=True, slots=True)
class _ResizedAxis:
    """Parameters of resizing one axis."""

    axis: int
    size: int
    """New length."""
    scale: np.float32
    length: float
    """New length before rounding, which align_corners uses."""
    roi: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Method:
    """Attributes that determine the input pixels of an output and their weights."""

    mode: str = "nearest"
    coordinates: str = "asymmetric"
    nearest: str = "inwards"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


COORDINATES_SINCE = 11
"""The first ONNX version in which resize ops have attributes for the coordinate transformation."""


def older_positions(mode: str, factors: np.ndarray | None) -> dict[str, str]:
    """The attributes that describe the coordinates of resize ops without such attributes. These ops take the upper of the two
    pixels around a position in dimensions that shrink, else the lower. ValueError if some grow and others shrink."""
    corner = {"coordinate_transformation_mode": "asymmetric"}
    if mode != "nearest":
        return corner
    if factors is None or ((factors < 1).any() and (factors > 1).any()):
        raise ValueError("the nearest of two pixels depends on the factors")
    return {**corner, "nearest_mode": "ceil" if (factors < 1).any() else "floor"}


@numerics("Upsample", until=6, widen=True, why=fails("because it has no op with `height_scale`"))
def upsample_2d(x: np.ndarray, *, height_scale: float, width_scale: float, mode: str) -> np.ndarray:
    """Opset 1: two scales for images."""
    return upsample(x, np.array([1, 1, height_scale, width_scale], np.float32), mode=mode)


@numerics("Upsample", since=7, until=8, widen=True, why=fails("because it has no op with scales as an attribute"))
def upsample_attribute(x: np.ndarray, *, scales: Sequence[float], mode: str) -> np.ndarray:
    """Opsets 7 and 8: the scales are an attribute."""
    return upsample(x, np.array(scales, np.float32), mode=mode)


@numerics("Upsample", since=9, widen=True, why=fails("for scales that are not integers"))
@numerics("Resize", until=10, widen=True, why=fails("because it has only the op of opset 11"))
def upsample(x: np.ndarray, scales: np.ndarray, *, mode: str = "nearest") -> np.ndarray:
    """Output pixel i is at i / scale. The nearest pixel is the lower of the two around it; the upper if the axis shrinks."""
    method = _Method("nearest" if mode == "nearest" else "linear")
    return _resized(x, _scaled(x, range(x.ndim), scales, None), method)


@numerics("Resize", since=11, widen=True, why=differs("in rounding of positions"))
def resize(
    x: np.ndarray, roi: np.ndarray | None = None, scales: np.ndarray | None = None, sizes: np.ndarray | None = None, *,
    antialias: int = 0, axes: Sequence[int] | None = None, coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
) -> np.ndarray:
    """Opset 11 and newer: with attributes for the conventions of all frameworks."""
    chosen = [axis % x.ndim for axis in (range(x.ndim) if axes is None else axes)]
    region = None if roi is None or not roi.size or coordinate_transformation_mode != "tf_crop_and_resize" else roi
    if sizes is not None and sizes.size:
        plan = _sized(x, chosen, sizes, region, keep_aspect_ratio_policy)
    elif scales is not None:
        plan = _scaled(x, chosen, scales, region)
    else:
        raise ValueError("Resize: neither scales nor sizes are given; connect one of these inputs")
    method = _Method(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        bool(antialias),
    )
    y = _resized(x, plan, method)
    if region is not None:
        for step in plan:
            positions = _coordinates(step, x.shape[step.axis], method.coordinates)
            outside = (positions < 0) | (positions > x.shape[step.axis] - 1)
            np.moveaxis(y, step.axis, 0)[outside] = extrapolation_value
    return y


def scaled_size(size: int, scale: float) -> int:
    """A size times a factor, rounded down, in single precision as engines compute it."""
    return int(np.floor(np.float32(size) * np.float32(scale)))


def _scaled(x: np.ndarray, axes: Sequence[int], scales: np.ndarray, roi: np.ndarray | None) -> list[_ResizedAxis]:
    steps = []
    for i, axis in enumerate(axes):
        scale = np.float32(scales[i])
        size = scaled_size(x.shape[axis], float(scale))
        steps.append(_ResizedAxis(axis, size, scale, x.shape[axis] * float(scale), _region(roi, i, len(axes))))
    return steps


def _sized(
    x: np.ndarray, axes: Sequence[int], sizes: np.ndarray, roi: np.ndarray | None, policy: str
) -> list[_ResizedAxis]:
    for size, axis in zip(sizes, axes, strict=True):
        if size and not x.shape[axis]:
            raise ValueError(f"Resize: dimension {axis} is empty and cannot grow to {size} elements")
    lengths, ratios = sizes_and_ratios([x.shape[axis] for axis in axes], [int(size) for size in sizes], policy)
    return [
        _ResizedAxis(axis, size, np.float32(ratio), ratio * x.shape[axis], _region(roi, i, len(axes)))
        for i, (axis, size, ratio) in enumerate(zip(axes, lengths, ratios, strict=True))
    ]


def sizes_and_ratios(old: Sequence[int], new: Sequence[int], policy: str) -> tuple[list[int], list[float]]:
    """The sizes that Resize produces for the requested ones, `new`, and their ratios to the old ones."""
    ratios = [1.0 if wanted == size else wanted / size for size, wanted in zip(old, new, strict=True)]
    if policy == "stretch":
        return list(new), ratios
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(ratio * size + 0.5) for size in old], [ratio] * len(old)


def _region(roi: np.ndarray | None, i: int, n: int) -> tuple[float, float]:
    return (0.0, 1.0) if roi is None else (float(roi[i]), float(roi[i + n]))


def _resized(x: np.ndarray, plan: list[_ResizedAxis], method: _Method) -> np.ndarray:
    y = x
    for step in plan:
        if step.scale != 1 or step.size != y.shape[step.axis] or step.roi != (0.0, 1.0):
            y = _along(y, step, method)
    if y.dtype == x.dtype:
        return y.copy() if y is x else y
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        y = np.clip(np.rint(y), limits.min, limits.max)
    return y.astype(x.dtype)


def _along(x: np.ndarray, step: _ResizedAxis, method: _Method) -> np.ndarray:
    """The array with one axis resized."""
    length = x.shape[step.axis]
    positions = _coordinates(step, length, method.coordinates)
    if method.mode == "nearest":
        inwards = "ceil" if step.scale < 1 else "floor"
        chosen = _nearest(positions, inwards if method.nearest == "inwards" else method.nearest)
        return np.take(x, np.clip(chosen, 0, length - 1), axis=step.axis)
    indices, weights = _taps(positions, step, length, method)
    column = [1] * x.ndim
    column[step.axis] = -1
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    shape = [*x.shape]
    shape[step.axis] = step.size
    y = np.zeros(shape, dtype)
    for index, weight in zip(indices.T, weights.T, strict=True):
        y += np.take(x, np.clip(index, 0, length - 1), axis=step.axis) * weight.reshape(column).astype(dtype)
    return y


def _coordinates(step: _ResizedAxis, length: int, mode: str) -> np.ndarray:
    """The coordinate of each output element on the input's axis."""
    i = np.arange(step.size, dtype=np.float32)
    if mode == "asymmetric":
        return i / step.scale
    if mode == "tf_half_pixel_for_nn":
        return (i + np.float32(0.5)) / step.scale
    if mode == "align_corners":
        return i * np.float32(length - 1) / np.float32(step.length - 1) if step.length != 1 else i * 0
    if mode == "tf_crop_and_resize":
        start, end = step.roi
        if step.size == 1:
            return np.full(1, 0.5 * (start + end) * (length - 1), np.float32)
        return np.float32(start * (length - 1)) + i * np.float32((end - start) * (length - 1) / (step.size - 1))
    if mode == "half_pixel_symmetric":
        offset = np.float32(length) / 2 * (1 - np.float32(step.size) / (step.scale * np.float32(length)))
        return (offset + (i.astype(np.float64) + 0.5) / step.scale - 0.5).astype(np.float32)
    half = (i + np.float32(0.5)) / step.scale - np.float32(0.5)
    if mode == "pytorch_half_pixel":
        return half if step.size > 1 else i * 0
    if mode == "half_pixel":
        return half
    raise ValueError(f"Resize: unknown coordinate_transformation_mode {mode!r}; see ONNX's list for the opset")


def _nearest(positions: np.ndarray, mode: str) -> np.ndarray:
    """The pixel of each position. Positions within rounding error of the middle of two pixels count as the middle, as in
    onnxruntime: 2 / (4 / 7) is 3.5, and a little less in single precision."""
    middle = np.floor(positions) + np.float32(0.5)
    settled = np.where(np.abs(positions - middle) < TIE, middle, positions)
    rounded = {
        "round_prefer_floor": np.ceil(settled - np.float32(0.5)),
        "round_prefer_ceil": np.floor(settled + np.float32(0.5)),
        "floor": np.floor(positions),
        "ceil": np.ceil(positions),
    }[mode]
    return rounded.astype(np.int64)


def _taps(positions: np.ndarray, step: _ResizedAxis, length: int, method: _Method) -> tuple[np.ndarray, np.ndarray]:
    """The input pixels of each output and their weights, both (outputs, taps)."""
    shrink = min(float(step.scale), 1.0) if method.antialias else 1.0
    radius = 2 if method.mode == "cubic" else 1
    first = int(np.floor(-radius / shrink)) + 1
    offsets = np.arange(first, 2 - first)
    base = np.ceil(positions).astype(np.int64) - 1
    distance = np.abs(offsets - (positions.astype(np.float64) - base)[:, None]) * shrink
    weights = cubic_kernel(distance, method.cubic_a) if method.mode == "cubic" else np.clip(1 - distance, 0, 1)
    indices = base[:, None] + offsets
    if method.exclude_outside:
        weights = np.where((indices < 0) | (indices >= length), 0, weights)
    if method.exclude_outside or method.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return indices, weights


def cubic_kernel(d: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
