"""Ops that move, cut and join data without changing a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from partita.graph.numerics.registry import EVERYWHERE, differs, fails, numerics, slow

Ints: TypeAlias = Sequence[int] | np.ndarray | None


@numerics("Identity", why=slow(EVERYWHERE))
def identity(x: Any) -> Any:
    """The input itself: a tensor, a sequence or an optional."""
    return x


@numerics("Reshape", until=4, why=fails("because it has only the op of opset 5, which takes the shape as an input"))
def reshape_attribute(x: np.ndarray, *, shape: Sequence[int]) -> np.ndarray:
    """Reshape below opset 5, where the shape is an attribute."""
    return reshape(x, np.array(shape, np.int64))


@numerics("Reshape", since=5, why=slow(EVERYWHERE))
def reshape(x: np.ndarray, shape: np.ndarray, *, allowzero: int = 0) -> np.ndarray:
    """A new shape; 0 copies a dimension unless ``allowzero``, -1 is inferred."""
    sizes = [int(d) if d or allowzero else x.shape[i] for i, d in enumerate(shape)]
    return x.reshape(sizes)


@numerics("Flatten", why=fails("for an array without elements"))
def flatten(x: np.ndarray, *, axis: int) -> np.ndarray:
    """A matrix: the axes before ``axis`` become rows, the others columns."""
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


@numerics("Squeeze", why=slow(EVERYWHERE))
def squeeze(x: np.ndarray, axes_input: np.ndarray | None = None, *, axes: Ints = None) -> np.ndarray:
    """Removes axes of size 1: the given ones, or all. The axes became an input in opset 13."""
    chosen = axes if axes_input is None else axes_input
    return np.squeeze(x) if chosen is None else np.squeeze(x, axis=tuple(int(a) for a in np.ravel(chosen)))


@numerics("Unsqueeze", until=12, why=fails("where the axes are not in order"))
def unsqueeze_attribute(x: np.ndarray, *, axes: Sequence[int]) -> np.ndarray:
    """Unsqueeze below opset 13, where the axes are an attribute."""
    return np.expand_dims(x, tuple(axes))


@numerics("Unsqueeze", since=13, why=slow(EVERYWHERE))
def unsqueeze(x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Inserts axes of size 1, at positions in the result."""
    return np.expand_dims(x, tuple(int(a) for a in np.ravel(axes)))


@numerics("Transpose", why=slow(EVERYWHERE))
def transpose(x: np.ndarray, *, perm: Sequence[int] | None = None) -> np.ndarray:
    """Permutes the axes; reverses them by default."""
    return np.transpose(x, perm)


@numerics("Concat", until=3, why=fails("where the axis is left to its default"))
def concat_on_channels(*xs: np.ndarray, axis: int = 1) -> np.ndarray:
    """Concat below opset 4, where the axis is optional and 1 by default."""
    return np.concatenate(xs, axis)


@numerics("Concat", since=4, why=slow(EVERYWHERE))
def concat(*xs: np.ndarray, axis: int) -> np.ndarray:
    """Concatenates along an axis."""
    return np.concatenate(xs, axis)


@numerics("Split", wants=("n_outputs",), why=slow(EVERYWHERE))
def split(
    x: np.ndarray, sizes: np.ndarray | None = None, *, n_outputs: int, axis: int = 0, split: Ints = None,
    num_outputs: int | None = None,
) -> tuple[np.ndarray, ...]:
    """Splits into the given sizes, or into equal parts of which the last may be smaller."""
    stated = split if sizes is None else sizes
    if stated is None:
        parts = num_outputs or n_outputs
        edges = np.minimum(np.arange(1, parts) * -(-x.shape[axis] // parts), x.shape[axis])
    else:
        lengths = np.asarray(stated, np.int64)
        if lengths.min(initial=0) < 0 or lengths.sum() != x.shape[axis]:
            raise ValueError(f"{lengths.tolist()} are not sizes of parts that add up to {x.shape[axis]}")
        edges = np.cumsum(lengths)[:-1]
    return tuple(np.split(x, edges, axis))


@numerics("Slice", since=10, why=slow(EVERYWHERE))
def cut(
    x: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None, steps: np.ndarray | None = None,
) -> np.ndarray:
    """A strided range along each of the axes. Bounds out of range are clamped as in Python, except that a negative step from
    before the first element starts at the first."""
    starts, ends = np.ravel(starts), np.ravel(ends)
    axes = np.arange(len(starts)) if axes is None else np.ravel(axes)
    steps = np.ones(len(starts), np.int64) if steps is None else np.ravel(steps)
    ranges = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps):
        first = max(int(start), -x.shape[axis]) if step < 0 else int(start)
        ranges[axis] = slice(first, int(end), int(step))
    return x[tuple(ranges)]


@numerics("Tile", until=5, why=fails("because it has only the op of opset 6, which takes a count for each axis"))
def tile_one_axis(x: np.ndarray, tiles: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Tile below opset 6: repeats along one axis."""
    repeats = [1] * x.ndim
    repeats[int(axis.item())] = int(tiles.item())
    return np.tile(x, repeats)


@numerics("Tile", since=6, why=slow(EVERYWHERE))
def tile(x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    """Repeats along every axis."""
    if len(repeats) != x.ndim or (repeats < 0).any():
        raise ValueError(f"the repeats {repeats.tolist()} must be {x.ndim} counts, one for each axis, none negative")
    return np.tile(x, repeats)


@numerics("Pad", since=2, until=10, why=fails("where padding is negative"))
def pad_attributes(x: np.ndarray, *, pads: Sequence[int], mode: str, value: float) -> np.ndarray:
    """Pad below opset 11, where everything is an attribute."""
    return pad(x, np.array(pads), np.asarray(value, x.dtype), mode=mode)


@numerics("Pad", since=11, why=fails("where padding is negative"))
def pad(
    x: np.ndarray, pads: np.ndarray, value: np.ndarray | None = None, axes: np.ndarray | None = None, *,
    mode: str = "constant",
) -> np.ndarray:
    """Pads both ends of axes; negative numbers crop."""
    chosen = range(x.ndim) if axes is None else [int(a) for a in axes]
    if len(pads) != 2 * len(chosen) or any(not -x.ndim <= axis < x.ndim for axis in chosen):
        raise ValueError(f"{len(pads)} pads do not fit both ends of axes {[*chosen]} in rank {x.ndim}")
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(chosen):
        low, high = widths[axis] = (int(pads[i]), int(pads[i + len(chosen)]))
        if x.shape[axis] + min(0, low) + min(0, high) < 0:
            raise ValueError(f"{-min(0, low) - min(0, high)} elements cannot be cut off axis {axis}, which has {x.shape[axis]}")
    x = x[tuple(slice(max(0, -low), size + min(0, high)) for (low, high), size in zip(widths, x.shape))]
    added = [(max(0, low), max(0, high)) for low, high in widths]
    if mode == "constant":
        return np.pad(x, added, constant_values=x.dtype.type(0) if value is None else value.item())
    return np.pad(x, added, mode=mode)  # type: ignore[call-overload]


@numerics("Shape", why=slow(EVERYWHERE))
def shape(x: np.ndarray, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """The dimensions, or a range of them."""
    return np.array(x.shape[start:end], np.int64)


@numerics("Size", why=slow(EVERYWHERE))
def size(x: np.ndarray) -> np.ndarray:
    """The number of elements."""
    return np.array(x.size, np.int64)


@numerics("Constant", why=differs("in strings, which must be Python objects"))
def constant(
    *, value: np.ndarray | None = None, sparse_value: Any = None, value_float: float | None = None,
    value_floats: Sequence[float] | None = None, value_int: int | None = None, value_ints: Sequence[int] | None = None,
    value_string: str | None = None, value_strings: Sequence[str] | None = None,
) -> np.ndarray:
    """The attribute that is set, as an array."""
    if value is not None:
        return value
    if sparse_value is not None:
        return _dense(sparse_value)
    typed = (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
    )
    for attribute, dtype in typed:
        if attribute is not None:
            return np.array(attribute, dtype)
    return np.array(value_string if value_string is not None else value_strings, object)


@numerics("ConstantOfShape", why=slow(EVERYWHERE))
def constant_of_shape(shape: np.ndarray, *, value: np.ndarray | None = None) -> np.ndarray:
    """A constant array; float32 zeros by default."""
    if value is None:
        return np.zeros(tuple(shape.tolist()), np.float32)
    return np.full(tuple(shape.tolist()), value.reshape(-1)[0], value.dtype)


def _dense(sparse: Any) -> np.ndarray:
    """The dense array of a SparseTensorProto."""
    from onnx.numpy_helper import to_array

    values, indices = to_array(sparse.values), to_array(sparse.indices)
    y = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        y.reshape(-1)[indices] = values
    else:
        y[tuple(indices.T)] = values
    return y
