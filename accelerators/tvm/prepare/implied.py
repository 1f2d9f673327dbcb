"""Finds inputs whose values follow from the sizes of a node's outputs: the shape that a Reshape or Expand is given,
the axes of a reduction.

TVM compiles such an op only where the value is a constant. Where the sizes around the node are known, so is the value,
and a constant replaces the input; the kernel then makes outputs of the sizes that the model's own types promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np

from graph.build import constant
from graph.graph import Graph
from graph.node import Node
from graph.rewrite import Rewriter, rewrite
from graph.types import TensorType

Shape = tuple[int, ...]
Say = Callable[[Node, Shape, list[Shape]], "list[int] | None"]


def name_implied(graph: Graph) -> Graph:
    """The graph with constants for the inputs whose values follow from sizes. Linear."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        implied = _implied(node)
        if implied is not None:
            slot, values = implied
            value = constant(np.array(values, np.int64), f"{node.name}_implied")
            rebuilt = rebuilt.evolve(inputs=(*rebuilt.inputs[:slot], value[0], *rebuilt.inputs[slot + 1 :]))
        rewriter.keep(node, rebuilt)

    return rewrite(graph, visit)


def _implied(node: Node) -> tuple[int, list[int]] | None:
    """The number of the input whose value follows from the sizes, and the value."""
    if node.domain:
        return None
    slot, say = (1, _axes) if str(node.op).startswith("Reduce") else _SAID.get(str(node.op), (0, None))
    if say is None:
        return None
    read = node.inputs[slot] if len(node.inputs) > slot else None
    if read is None or read.node.value is not None:
        return None
    given = _shape(node.inputs[0].type) if node.inputs[0] is not None else None
    shapes = [_shape(entry.type) for entry in node.outputs if entry.name]
    count = _shape(read.type)
    if given is None or count is None or len(count) > 1 or None in shapes or len(shapes) != len(node.outputs):
        return None
    values = say(node, given, [shape for shape in shapes if shape is not None])
    return (slot, values) if values is not None and len(values) == (count[0] if count else 1) else None


def _shape(value_type: object) -> Shape | None:
    if not isinstance(value_type, TensorType) or not value_type.is_static or value_type.shape is None:
        return None
    return tuple(int(size or 0) for size in value_type.shape)


def _target(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    """The result's sizes themselves; a size of nothing would mean something else to Reshape."""
    return None if 0 in shapes[0] else list(shapes[0])


def _widened(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    """The shape given to Expand may have fewer dimensions than its result: then it holds the last ones."""
    read = node.inputs[1]
    count = _shape(read.type) if read is not None else None
    return list(shapes[0][len(shapes[0]) - count[0] :]) if count else None


def _repeats(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    if 0 in given or len(given) != len(shapes[0]):
        return None
    return [new // old for old, new in zip(given, shapes[0], strict=True)]


def _pieces(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    axis = int(node.attrs.get("axis", 0)) % max(len(given), 1)
    return [shape[axis] for shape in shapes]


def _sizes(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    """Sizes that Resize stretches to, if it need not keep proportions."""
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch" or len(given) != len(shapes[0]):
        return None
    axes = node.attrs.get("axes")
    return list(shapes[0]) if axes is None else [shapes[0][axis % len(given)] for axis in axes]


def _axes(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    """The axes that a reduction takes away, if only one choice of so many makes these sizes."""
    read = node.inputs[1]
    count = _shape(read.type) if read is not None else None
    if count is None or len(given) > MOST_AXES:
        return None
    (wanted,) = count if count else (1,)
    keep = int(node.attrs.get("keepdims", 1))
    fitting = []
    for axes in combinations(range(len(given)), wanted):
        kept = [1 if d in axes else size for d, size in enumerate(given) if keep or d not in axes]
        if tuple(kept) == shapes[0]:
            fitting.append(list(axes))
    return fitting[0] if len(fitting) == 1 else None


MOST_AXES = 8
"""A tensor of more dimensions is left as it is."""

_SAID: Mapping[str, tuple[int, Say]] = {
    "Reshape": (1, _target),
    "Expand": (1, _widened),
    "Tile": (1, _repeats),
    "Split": (1, _pieces),
    "Resize": (3, _sizes),
    "ConstantOfShape": (0, _target),
}
"""For each op, the number of the input, and the function that finds its value."""
