"""How a resize mixes the places of an image: for each row and column of the result the two it reads, and their shares.

What each mode of ONNX's means is asked of the op's own meaning in numpy: a resize is linear along each dimension, so resizing
the unit vectors gives its matrix."""

from __future__ import annotations

import numpy as np

from graph.graph import Graph
from graph.interpret import evaluate_node
from graph.node import Node

Array = np.ndarray

LARGEST = 30_000_000
"""Numbers that finding a matrix may take."""


def mixtures(node: Node, graph: Graph, sizes: tuple[int, ...], made: tuple[int, ...]) -> list[tuple[Array, Array]] | None:
    """For each dimension (places [made, 2], shares [made, 2]); None for what mixes more places, shrinks, or is cropped."""
    attributes = node.attrs
    if attributes.get("axes") is not None or attributes.get("antialias", 0) or attributes.get("mode", "nearest") == "cubic":
        return None
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize" or any(m < n for n, m in zip(sizes, made)):
        return None
    found = []
    for axis in (0, 1):
        matrix = _matrix(node, graph, sizes, made, axis)
        if matrix is None or (np.count_nonzero(matrix, axis=1) > 2).any():
            return None
        places = np.sort(np.argsort(-np.abs(matrix), axis=1, kind="stable")[:, :2], axis=1)
        if places.shape[1] == 1:
            places = np.repeat(places, 2, axis=1)
            shares = np.stack([matrix[:, 0], np.zeros(len(matrix))], 1)
        else:
            shares = np.take_along_axis(matrix, places, 1)
        found.append((places.astype(np.int32), shares.astype(np.float32)))
    return found


def _matrix(node: Node, graph: Graph, sizes: tuple[int, ...], made: tuple[int, ...], axis: int) -> Array | None:
    """[places made, places read] of one dimension."""
    count, other = sizes[axis], made[1 - axis]
    if count * made[axis] * other > LARGEST:
        return None
    unit = np.eye(count, dtype=np.float32)
    image = unit[None, :, :, None] if axis == 0 else unit[None, :, None, :]
    given = [image, *(None if entry is None else entry.node.value for entry in node.inputs[1:])]
    if len(given) > 3 and given[3] is not None:
        given[3] = np.array([1, count, *made])
    (result,) = evaluate_node(node, given, graph.opsets)
    return np.asarray(result[0, :, :, 0] if axis == 0 else result[0, :, 0, :], np.float64).T
