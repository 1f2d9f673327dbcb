"""Resizes as weighted sums of the positions that they read.

The numpy implementation of the op defines the matrix in every mode: a resize is linear along each dimension, so that resizing the
unit vectors yields its matrix."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from partita.graph.body_builder import BodyBuilder
from partita.graph.graph import Graph
from partita.graph.interpret import evaluate_node
from partita.graph.node import Node, NodeEntry
from partita.graph.types import HALVES, Array, TensorType, numpy_dtype

TAPS = 8
"""Largest number of positions that a result may read along one dimension."""

MIXED = HALVES | {"float32", "float64"}
"""The element types in which positions are mixed."""

LARGEST = 30_000_000
"""Largest number of elements for computing a matrix."""


def resize(b: BodyBuilder) -> Graph | None:
    """A resize, one dimension after the other: each result is a weighted sum of the positions it reads. Half-precision values are
    gathered as they are, mixed in float32, and rounded once."""
    rank, dtype, y = b.rank(0), b.type(0).dtype, b.input(0)
    if b.attr("mode", "nearest") != "nearest" and dtype not in MIXED:
        return None
    is_narrow = starts_narrow = dtype in HALVES
    for axis in range(rank):
        shares = matrix(b.node, b.opsets, axis)
        if shares is None or not len(shares):
            return None
        if not np.array_equal(shares, np.eye(shares.shape[1])):
            taps = np.argsort(shares == 0, axis=1, kind="stable")[:, : int(np.count_nonzero(shares, axis=1).max())]
            if taps.shape[1] > TAPS:
                return None
            shares = np.take_along_axis(shares, taps, 1).astype(numpy_dtype("float32" if starts_narrow else dtype))
            y = _mixed(b, y, rank - axis, taps, shares, is_narrow)
            is_narrow = is_narrow and y.node.op == "Gather"
    if starts_narrow and not is_narrow:
        y = b.Cast(y, to=dtype)
    return b.done(y if y.node.is_op else b.Identity(y))


def _mixed(b: BodyBuilder, x: NodeEntry, dims: int, positions: Array, shares: Array, is_narrow: bool) -> NodeEntry:
    """The weighted sum of the positions that each result reads along dimension `-dims`, in float32 if the values are narrow; a
    single position is only gathered."""
    read = [b.Gather(x, column, axis=-dims) for column in positions.T]
    if len(read) == 1 and (shares == 1).all():
        return read[0]
    read = [b.Cast(part, to="float32") for part in read] if is_narrow else read
    along = [-1, *[1] * (dims - 1)]
    total, *others = [b.Mul(part, share.reshape(along)) for part, share in zip(read, shares.T, strict=True)]
    for other in others:
        total = b.Add(total, other)
    return total


def has_constant_sizes(node: Node) -> bool:
    """True if all inputs of a resize except its image are constant."""
    return all(entry is None or entry.node.value is not None for entry in node.inputs[1:])


def mixtures(node: Node, graph: Graph, image: tuple[int, ...], result: tuple[int, ...]) -> list[tuple[Array, Array]] | None:
    """For height and width of a resized image [N, C, H, W], the positions [results, 2] and shares [results, 2]; None for a resize
    that mixes more positions, shrinks the image, crops it, or changes other dimensions."""
    attributes = node.attrs
    if attributes.get("axes") is not None or attributes.get("antialias", 0) or attributes.get("mode", "nearest") == "cubic":
        return None
    if image[:2] != result[:2] or any(m < n for n, m in zip(image[2:], result[2:])):
        return None
    by_axis = []
    for axis in (2, 3):
        shares = matrix(node, graph.opsets, axis)
        if shares is None or (np.count_nonzero(shares, axis=1) > 2).any():
            return None
        largest = np.argsort(-np.abs(shares), axis=1, kind="stable")
        positions = np.sort(largest[:, :2], axis=1)
        if (np.count_nonzero(shares, axis=1) == 1).all():
            positions = np.repeat(largest[:, :1], 2, axis=1)
            shares = np.stack([np.take_along_axis(shares, largest[:, :1], 1)[:, 0], np.zeros(len(shares))], 1)
        else:
            shares = np.take_along_axis(shares, positions, 1)
        by_axis.append((positions.astype(np.int32), shares.astype(np.float32)))
    return by_axis


def matrix(node: Node, opsets: Mapping[str, int], axis: int) -> Array | None:
    """The matrix [results, positions read] of one dimension; None if it depends on other dimensions or on values that are not
    constant."""
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    cropped = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    stretched = node.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    if not isinstance(data_type, TensorType) or data_type.shape is None or cropped or not stretched:
        return None
    count, axes = data_type.shape[axis], node.attrs.get("axes")
    if not isinstance(count, int) or not count:
        return None
    chosen = list(range(len(data_type.shape))) if axes is None else [position % len(data_type.shape) for position in axes]
    wanted = node.output_types[0]
    if not isinstance(wanted, TensorType) or wanted.shape is None:
        return None
    size = wanted.shape[axis]
    if count * max(count, size if isinstance(size, int) else 0) > LARGEST:
        return None
    unit = np.eye(count)
    if axis not in chosen:
        return unit
    given: list[Array | None] = [unit]
    for entry in node.inputs[1:]:
        value = None if entry is None else entry.node.value
        if entry is not None and value is None:
            return None
        own = value is not None and value.size == len(chosen)
        given.append(np.array([_kept(value, count), value[chosen.index(axis)]], value.dtype) if own else None)  # type: ignore[index,union-attr]
    attributes = {name: value for name, value in node.attrs.items() if name != "axes"}
    if "scales" in attributes:
        attributes["scales"] = [1.0, attributes["scales"][axis]]
    (result,) = evaluate_node(node.evolve(attrs=attributes), given, opsets)
    return np.asarray(result, np.float64).T


def _kept(value: Array | None, count: int) -> float:
    """The scale, or the size, of a dimension that keeps its size."""
    return count if value is not None and value.dtype.kind == "i" else 1
