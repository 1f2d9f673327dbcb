"""How a resize mixes the positions of an image: for each row and column of the result the two it reads, and their
shares.

The meaning of each of ONNX's modes comes from the op's own meaning in numpy: a resize is linear along each dimension,
so resizing the unit vectors gives its matrix.
"""

from __future__ import annotations

import numpy as np

from partita.graph.graph import Graph
from partita.graph.interpret import evaluate_node
from partita.graph.node import Node
from partita.graph.types import Array, TensorType

LARGEST = 30_000_000
"""Numbers that finding a matrix may take."""


def has_constant_sizes(node: Node) -> bool:
    """Is all that a resize reads beside its image known when the model is compiled?"""
    return all(entry is None or entry.node.value is not None for entry in node.inputs[1:])


def mixtures(node: Node, graph: Graph, image: tuple[int, ...], result: tuple[int, ...]) -> list[tuple[Array, Array]] | None:
    """For each dimension of the pixels (positions [made, 2], shares [made, 2]), where an image [N, C, H, W] is resized; None
    for a resize that mixes more positions, shrinks the image, crops it, or changes other dimensions.
    """
    attributes = node.attrs
    if attributes.get("axes") is not None or attributes.get("antialias", 0) or attributes.get("mode", "nearest") == "cubic":
        return None
    if image[:2] != result[:2] or any(m < n for n, m in zip(image[2:], result[2:])):
        return None
    by_axis = []
    for axis in (2, 3):
        shares = matrix(node, graph, axis)
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


def matrix(node: Node, graph: Graph, axis: int) -> Array | None:
    """The matrix [positions made, positions read] of one dimension; None where it depends on other dimensions or on
    unknown values.
    """
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
    (result,) = evaluate_node(node.evolve(attrs=attributes), given, graph.opsets)
    return np.asarray(result, np.float64).T


def _kept(value: Array | None, count: int) -> float:
    """The scale, or the size, of a dimension that stays as it is."""
    return count if value is not None and value.dtype.kind == "i" else 1
