"""Replaces inputs whose values follow from the sizes of a node's outputs: the shape of a Reshape or Expand, the axes of a
reduction.

TVM compiles such an op only if the value is a constant. If the sizes around the node are static, they determine the value, and a
constant replaces the input; the kernel then makes outputs of the sizes that the model's types declare. A file may declare sizes
that its own values contradict: then the run has to fail, as it does if the op is computed unchanged. So a few ops compare each
such value with the constant, and their result is one more output of the graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from partita.graph.build import constant, op
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.passes.registry import COMPLAINTS, REQUESTS, register_pass

Shape = tuple[int, ...]
Axes = tuple[int, ...]
Say = Callable[[Node, Shape, list[Shape]], "list[int] | None"]


@register_pass("FoldImplied", keeps=REQUESTS, family="tvm")
def fold_implied(graph: Graph, *, watched: bool = False) -> Graph:
    """Constants for inputs whose values follow from sizes, such as the shape of a Reshape. If `watched`, the graph gets an output
    and an error text for each: an element is true if the run's value differs. Linear."""
    flags: list[tuple[Node, str]] = []

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        implied = _implied(node)
        if implied is not None:
            slot, values = implied
            read, value = rebuilt.inputs[slot], constant(np.array(values, np.int64))
            assert read is not None
            if watched and values:
                flags.append((said_otherwise(node, read, values), complaint(node, values)))
            rebuilt = rebuilt.evolve(inputs=(*rebuilt.inputs[:slot], value[0], *rebuilt.inputs[slot + 1 :]))
        rewriter.keep(node, rebuilt)

    folded = rewrite(graph, visit)
    if not flags:
        return folded
    names = _free_names(len(flags), folded.output_names)
    outputs = [*folded.outputs, *(wrong[0] for wrong, _ in flags)]
    attributes = {**folded.attrs, COMPLAINTS: tuple([words for _, words in flags])}
    return folded.evolve(outputs=outputs, output_names=(*folded.output_names, *names), attrs=attributes)


def has_implied(graph: Graph) -> bool:
    """True if `fold_implied` would watch one of the graph's values. Linear."""
    return any((implied := _implied(node)) is not None and bool(implied[1]) for node in graph.nodes)


def _free_names(count: int, taken: Sequence[str]) -> list[str]:
    """Names for `count` outputs that are not taken."""
    free = (name for number in itertools.count() if (name := f"{number}_said_otherwise") not in taken)
    return list(itertools.islice(free, count))


def _implied(node: Node) -> tuple[int, list[int]] | None:
    """The index of the input whose value follows from the sizes, and the value."""
    if node.domain:
        return None
    slot, say = (1, _axes) if str(node.op).startswith("Reduce") else INFERRED.get(str(node.op), (0, None))
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
    """The result's sizes; None if one is 0, which Reshape takes for a copied size."""
    return None if 0 in shapes[0] else list(shapes[0])


def _widened(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    """The shape operand of Expand: the last sizes of the result, as many as it has elements."""
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
    """The target sizes of a Resize that does not keep the aspect ratio."""
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch" or len(given) != len(shapes[0]):
        return None
    axes = node.attrs.get("axes")
    return list(shapes[0]) if axes is None else [shapes[0][axis % len(given)] for axis in axes]


def _axes(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    """The axes of a reduction."""
    keep = int(node.attrs.get("keepdims", 1))
    return _only_choice(node, given, lambda axes: _without(given, axes, kept=bool(keep)) == shapes[0])


def _gone(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    """The axes that Squeeze removes."""
    return _only_choice(node, given, lambda axes: _without(given, axes) == shapes[0] and all(given[axis] == 1 for axis in axes))


def _new(node: Node, given: Shape, shapes: list[Shape]) -> list[int] | None:
    """The axes that Unsqueeze adds, counted in its result."""
    result = shapes[0]
    return _only_choice(node, result, lambda axes: _without(result, axes) == given and all(result[axis] == 1 for axis in axes))


def _only_choice(node: Node, sizes: Shape, fits: Callable[[Axes], bool]) -> list[int] | None:
    """The axes of a tensor of these sizes that fit, if exactly one combination of the operand's length does."""
    read = node.inputs[1]
    count = _shape(read.type) if read is not None else None
    if count is None or len(sizes) > MOST_AXES:
        return None
    fitting = [axes for axes in itertools.combinations(range(len(sizes)), count[0] if count else 1) if fits(axes)]
    return list(fitting[0]) if len(fitting) == 1 else None


def _without(sizes: Shape, axes: Axes, kept: bool = False) -> Shape:
    """The sizes without these axes, or with 1 for each if `kept`."""
    return tuple([1 if axis in axes else size for axis, size in enumerate(sizes) if kept or axis not in axes])


MOST_AXES = 8
"""Largest rank for which axes are inferred."""

INFERRED: Mapping[str, tuple[int, Say]] = {
    "Reshape": (1, _target),
    "Expand": (1, _widened),
    "Tile": (1, _repeats),
    "Split": (1, _pieces),
    "Resize": (3, _sizes),
    "ConstantOfShape": (0, _target),
    "Squeeze": (1, _gone),
    "Unsqueeze": (1, _new),
}
"""For each op, the index of the input, and the function that computes its value."""


Wrong = Callable[[Node, NodeEntry, Sequence[int]], Node]


def said_otherwise(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    """An op whose result has a true element if the value contradicts the sizes of the node's results."""
    name = str(node.op)
    rule = _axes_otherwise if name.startswith("Reduce") else OTHERWISE.get(name, _is_other)
    return rule(node, value, implied)


def complaint(node: Node, implied: Sequence[int]) -> str:
    """The error text for a value that contradicts the sizes."""
    return f"node {node.name!r} ({node.op}): the sizes of its results ask for {list(implied)}, and it is given another value"


def _is_other(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    return op("Not", op("Equal", value, _numbers(implied)))


def _shape_otherwise(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    """The shape operand of Reshape: one size may be inferred (-1), and sizes be copied from the input (0)."""
    given = _sizes_of(node.inputs[0])
    takes_over = [not node.attrs.get("allowzero") and given[i : i + 1] == (size,) for i, size in enumerate(implied)]
    is_left_out = op("Equal", value, _numbers([-1]))
    taken_over = op("And", op("Equal", value, _numbers([0])), constant(np.array(takes_over)))
    is_right = op("Or", op("Equal", value, _numbers(implied)), op("Or", is_left_out, taken_over))
    both = op("And", is_left_out, op("Reshape", is_left_out, _numbers([len(implied), 1])))
    return op("Or", op("Not", is_right), op("And", both, _off_diagonal(len(implied))))


def _width_otherwise(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    """The shape operand of Expand: 1 leaves a size unchanged."""
    given = (1,) * len(implied) + _sizes_of(node.inputs[0])
    may_be_one = np.array(given[-len(implied) :]) == np.array(implied)
    kept = op("And", op("Equal", value, _numbers([1])), constant(may_be_one))
    return op("Not", op("Or", op("Equal", value, _numbers(implied)), kept))


def _axes_otherwise(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    """Axes in any order without duplicates, counted from either end."""
    rank, count = len(_sizes_of(node[0] if node.op == "Unsqueeze" else node.inputs[0])), len(implied)
    row = op("Reshape", value, _numbers([1, count]))
    axes = op("Where", op("Less", row, _numbers([0])), op("Add", row, _numbers([rank])), row)
    is_wrong = op("Not", _any_of(axes, implied))
    twice = op("And", op("Equal", axes, op("Reshape", axes, _numbers([count, 1]))), _off_diagonal(count))
    return op("Or", is_wrong, twice)


def _any_of(values: Node, numbers: Sequence[int]) -> Node:
    result = op("Equal", values, _numbers([numbers[0]]))
    for number in numbers[1:]:
        result = op("Or", result, op("Equal", values, _numbers([number])))
    return result


def _numbers(values: Sequence[int]) -> Node:
    return constant(np.array(values, np.int64))


def _off_diagonal(count: int) -> Node:
    return constant(~np.eye(count, dtype=bool))


def _sizes_of(entry: NodeEntry | None) -> tuple[int, ...]:
    kind = entry.type if entry is not None else None
    assert isinstance(kind, TensorType) and kind.shape is not None
    return tuple(int(size or 0) for size in kind.shape)


OTHERWISE: Mapping[str, Wrong] = {
    "Reshape": _shape_otherwise, "Expand": _width_otherwise, "Squeeze": _axes_otherwise, "Unsqueeze": _axes_otherwise,
}
"""The checks of ops whose value can be written in more than one way."""
