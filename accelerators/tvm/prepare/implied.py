"""Inputs whose values the sizes of a node's outputs say: the shape that a Reshape or Expand is given, the axes of a reduction.

TVM compiles such an op only where the value is a constant. Where the sizes around the node are known, so is the value, and a
constant takes the input's place; the kernel then makes what the model's own types promise."""

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
    """The graph with constants for what sizes say. Linear."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        made = rewriter.rebuilt(node)
        found = _implied(node)
        if found is not None:
            place, values = found
            value = constant(np.array(values, np.int64), f"{node.name}_implied")
            made = made.evolve(inputs=(*made.inputs[:place], value[0], *made.inputs[place + 1 :]))
        rewriter.keep(node, made)

    return rewrite(graph, visit)


def _implied(node: Node) -> tuple[int, list[int]] | None:
    """Which input has a value that the sizes say, and the value."""
    if node.domain:
        return None
    place, say = (1, _axes) if str(node.op).startswith("Reduce") else _SAID.get(str(node.op), (0, None))
    if say is None:
        return None
    read = node.inputs[place] if len(node.inputs) > place else None
    if read is None or read.node.value is not None:
        return None
    given = _shape(node.inputs[0].type) if node.inputs[0] is not None else None
    made = [_shape(entry.type) for entry in node.outputs if entry.name]
    count = _shape(read.type)
    if given is None or count is None or len(count) > 1 or None in made or len(made) != len(node.outputs):
        return None
    values = say(node, given, [shape for shape in made if shape is not None])
    return (place, values) if values is not None and len(values) == (count[0] if count else 1) else None


def _shape(made: object) -> Shape | None:
    if not isinstance(made, TensorType) or not made.is_static or made.shape is None:
        return None
    return tuple(int(size or 0) for size in made.shape)


def _target(node: Node, given: Shape, made: list[Shape]) -> list[int] | None:
    """The result's sizes themselves; a size of nothing would mean something else to Reshape."""
    return None if 0 in made[0] else list(made[0])


def _widened(node: Node, given: Shape, made: list[Shape]) -> list[int] | None:
    """What Expand is given may have fewer dimensions than its result: then they are the last."""
    read = node.inputs[1]
    count = _shape(read.type) if read is not None else None
    return list(made[0][len(made[0]) - count[0] :]) if count else None


def _repeats(node: Node, given: Shape, made: list[Shape]) -> list[int] | None:
    if 0 in given or len(given) != len(made[0]):
        return None
    return [new // old for old, new in zip(given, made[0], strict=True)]


def _pieces(node: Node, given: Shape, made: list[Shape]) -> list[int] | None:
    axis = int(node.attrs.get("axis", 0)) % max(len(given), 1)
    return [shape[axis] for shape in made]


def _sizes(node: Node, given: Shape, made: list[Shape]) -> list[int] | None:
    """Sizes that Resize stretches to, if it need not keep proportions."""
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch" or len(given) != len(made[0]):
        return None
    axes = node.attrs.get("axes")
    return list(made[0]) if axes is None else [made[0][axis % len(given)] for axis in axes]


def _axes(node: Node, given: Shape, made: list[Shape]) -> list[int] | None:
    """The axes that a reduction takes away, if only one choice of so many makes these sizes."""
    read = node.inputs[1]
    count = _shape(read.type) if read is not None else None
    if count is None or len(given) > MOST_AXES:
        return None
    (wanted,) = count if count else (1,)
    keep = int(node.attrs.get("keepdims", 1))
    found = []
    for axes in combinations(range(len(given)), wanted):
        kept = [1 if d in axes else size for d, size in enumerate(given) if keep or d not in axes]
        if tuple(kept) == made[0]:
            found.append(list(axes))
    return found[0] if len(found) == 1 else None


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
"""By op: which input, and what it says."""
