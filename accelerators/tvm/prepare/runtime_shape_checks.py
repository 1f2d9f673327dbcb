"""Run-time checks that a value that follows from declared sizes agrees with them.

`inferred_operands` replaces such a value by a constant. A file may declare sizes that its own values contradict: then the run has
to fail, as it does if the op is computed unchanged. So a few ops compare each such value with the constant, and their result is
one more output of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from partita.graph.build import constant, op
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType

Wrong = Callable[[Node, NodeEntry, Sequence[int]], Node]


def said_otherwise(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    """An op whose result has a true element if the value contradicts the sizes of the node's results."""
    name = str(node.op)
    rule = _axes_otherwise if name.startswith("Reduce") else _RULES.get(name, _is_other)
    return rule(node, value, implied)


def complaint(node: Node, implied: Sequence[int]) -> str:
    """The error text for a value that contradicts the sizes."""
    return f"node {node.name!r} ({node.op}): the sizes of its results ask for {list(implied)}, and it is given another value"


def _is_other(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    return op("Not", op("Equal", value, _numbers(implied)))


def _shape_otherwise(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    """The shape operand of Reshape: one size may be inferred (-1), and sizes be copied from the input (0)."""
    given = _sizes(node.inputs[0])
    takes_over = [not node.attrs.get("allowzero") and given[i : i + 1] == (size,) for i, size in enumerate(implied)]
    is_left_out = op("Equal", value, _numbers([-1]))
    taken_over = op("And", op("Equal", value, _numbers([0])), constant(np.array(takes_over)))
    is_right = op("Or", op("Equal", value, _numbers(implied)), op("Or", is_left_out, taken_over))
    both = op("And", is_left_out, op("Reshape", is_left_out, _numbers([len(implied), 1])))
    return op("Or", op("Not", is_right), op("And", both, _off_diagonal(len(implied))))


def _width_otherwise(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    """The shape operand of Expand: 1 leaves a size unchanged."""
    given = (1,) * len(implied) + _sizes(node.inputs[0])
    may_be_one = np.array(given[-len(implied) :]) == np.array(implied)
    kept = op("And", op("Equal", value, _numbers([1])), constant(may_be_one))
    return op("Not", op("Or", op("Equal", value, _numbers(implied)), kept))


def _axes_otherwise(node: Node, value: NodeEntry, implied: Sequence[int]) -> Node:
    """Axes in any order without duplicates, counted from either end."""
    rank, count = len(_sizes(node[0] if node.op == "Unsqueeze" else node.inputs[0])), len(implied)
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


def _sizes(entry: NodeEntry | None) -> tuple[int, ...]:
    kind = entry.type if entry is not None else None
    assert isinstance(kind, TensorType) and kind.shape is not None
    return tuple(int(size or 0) for size in kind.shape)


_RULES: Mapping[str, Wrong] = {
    "Reshape": _shape_otherwise, "Expand": _width_otherwise, "Squeeze": _axes_otherwise, "Unsqueeze": _axes_otherwise,
}
"""The checks of ops whose value can be written in more than one way."""
