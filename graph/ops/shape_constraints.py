"""Constraints between input sizes of an op that ONNX's inference does not check.

A kernel that takes the sizes of one input for those of another reads or writes out of bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from partita.graph.errors import TypeMismatch
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType

Shape = Sequence[Any] | None
"""The shape of an input: integers, symbols or other expressions of a size; None if unknown."""


@attrs.frozen(slots=True)
class Fit:
    """A constraint on two sizes."""

    size: Any
    relation: Literal["equal", "at most", "one or equal"]
    other: Any
    said: str
    """Description of both sizes, for an error."""

    def is_broken(self) -> bool:
        """True if both sizes are static and violate the constraint."""
        if not (isinstance(self.size, int) and isinstance(self.other, int)) or self.size == self.other:
            return False
        return self.size > self.other if self.relation == "at most" else self.relation == "equal" or self.size != 1


def fits(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    """The constraints on the sizes of the node's inputs."""
    if has_fits(node):
        yield from _RULES[str(node.op)](node, [*shapes, *[None] * 8])


def require_fits(node: Node) -> None:
    """Raises TypeMismatch if static sizes of the inputs contradict each other, or integers and zero points differ in type."""
    cause = misfit(node, map(shape_of, node.inputs)) if has_fits(node) else None
    if cause is not None:
        raise TypeMismatch(cause, where=f"node {node.name!r} ({node.op})", remedy="Correct the sizes of its inputs")
    if node.op == "DequantizeLinear" and not node.domain and len(node.inputs) > 2:
        whole, point = (getattr(entry and entry.type, "dtype", None) for entry in (node.inputs[0], node.inputs[2]))
        if whole and point and whole != point:
            cause = f"its integers are {whole} and its zero points {point}"
            raise TypeMismatch(cause, where=f"node {node.name!r} ({node.op})", remedy="Give zero points of the integers' type")


def misfit(node: Node, shapes: Iterable[Shape]) -> str | None:
    """Description of a violated constraint for inputs of these shapes, or None."""
    broken = next((fit for fit in fits(node, list(shapes)) if fit.is_broken()), None)
    return None if broken is None else f"{broken.said} do not go together: {broken.size} and {broken.other}"


def has_fits(node: Node) -> bool:
    """True if the op has constraints on its input sizes."""
    return not node.domain and node.op in _RULES


def shape_of(entry: NodeEntry | None) -> Shape:
    """The shape in the value's type."""
    kind = None if entry is None else entry.type
    return kind.shape if isinstance(kind, TensorType) else None


Rule = Callable[[Node, Sequence[Shape]], Iterator[Fit]]


def _each(sizes: Sequence[Any], relation: Any, others: Sequence[Any], said: str) -> Iterator[Fit]:
    for size, other in zip(sizes, others, strict=False):
        yield Fit(size, relation, other, said)


def _product(left: int, right: int) -> Rule:
    """The rule that both matrices have one depth."""

    def rule(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
        first, second = shapes[left], shapes[right]
        if first and second:
            turned = [node.op == "Gemm" and bool(node.attrs.get(name, 0)) for name in ("transA", "transB")]
            depth = first[0] if turned[0] else first[-1]
            rows = second[-1] if turned[1] else second[-2:][0]
            yield Fit(depth, "equal", rows, "the depths of both matrices")

    return rule


def _concat(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    known = [shape for shape in shapes if shape]
    axis = int(node.attrs.get("axis", 1))
    for shape in known[1:]:
        if len(shape) == len(known[0]):
            kept = [d for d in range(len(shape)) if d != axis % len(shape)]
            yield from _each([shape[d] for d in kept], "equal", [known[0][d] for d in kept], "the sizes of what is joined")


def _channels(weights: int, is_turned: bool = False) -> Rule:
    """The channels of the data and of the weights."""

    def rule(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
        data, filters = shapes[0], shapes[weights]
        if data and filters and len(data) > 1 and len(filters) > 1:
            taken = filters[0] if is_turned else filters[1]
            group = 1 if is_turned else int(node.attrs.get("group", 1))
            if group == 1 or isinstance(taken, int):
                yield Fit(data[1], "equal", taken if group == 1 else taken * group, "the channels of the data and of the weights")
        bias = shapes[8 if weights == 3 else 2]
        if bias and filters and node.op in ops("convolution") | {"QLinearConv"}:
            channels, groups = filters[1 if is_turned else 0], int(node.attrs.get("group", 1)) if is_turned else 1
            yield from [] if groups > 1 and not isinstance(channels, int) else _each(
                bias, "equal", [channels * groups if groups > 1 else channels], "the sizes of the bias and of what it is added to"
            )

    return rule


def _aligned(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    data, indices, updates = shapes[:3]
    if data and indices and len(data) == len(indices):
        axis, said = int(node.attrs.get("axis", 0)) % len(data), "the sizes of the indices and of the data"
        yield from (Fit(indices[d], "at most", data[d], said) for d in range(len(data)) if d != axis)
    if indices and updates and node.op != "GatherElements":
        yield from _each(indices, "equal", updates, "the sizes of the indices and of the updates")


def _gather_rows(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    if shapes[0] and shapes[1]:
        count = int(node.attrs.get("batch_dims", 0))
        yield from _each(shapes[1][:count], "equal", shapes[0][:count], "the batches of the indices and of the data")


def _scatter_rows(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    data, indices, updates = shapes[:3]
    if data and indices and updates is not None and isinstance(indices[-1], int):
        wanted = [*indices[:-1], *data[indices[-1] :]]
        yield from _each(updates, "equal", wanted, "the sizes of the updates and of what they replace")


def _grid(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    if shapes[0] and shapes[1]:
        yield Fit(shapes[1][0], "equal", shapes[0][0], "the batches of the grid and of the data")
        yield Fit(shapes[1][-1], "equal", len(shapes[0]) - 2, "the numbers of a position and the dimensions of the data")


def _slope(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    """The slope is broadcast to the data, not vice versa; below opset 7 it may be one element per channel."""
    data, slope = shapes[:2]
    channels = data[1] if data and len(data) > 1 else 0
    by_channel = slope is not None and len(slope) == 1 and (slope[0] == channels or not isinstance(channels, int))
    if data and slope and not by_channel:
        yield from _each(slope[::-1], "one or equal", data[::-1], "the sizes of the slope and of the data")


def _recurrent(gates: int) -> Rule:
    """All weights and states have the op's hidden size, and there is one state per sequence."""

    def rule(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
        data, recurrence = shapes[0], shapes[2]
        width = node.attrs.get("hidden_size", recurrence[2] if recurrence and len(recurrence) == 3 else None)
        if not data or len(data) != 3 or not isinstance(width, int):
            return
        ways, first = 2 if node.attrs.get("direction") == "bidirectional" else 1, bool(node.attrs.get("layout", 0))
        batch, wide = data[0 if first else 1], gates * width
        state = (batch, ways, width) if first else (ways, batch, width)
        wanted = [(ways, wide, data[2]), (ways, wide, width), (ways, 2 * wide), (batch,), state, state, (ways, 3 * width)]
        for number, (shape, sizes) in enumerate(zip(shapes[1:], wanted, strict=False), 1):
            if number < 6 or node.op == "LSTM":
                yield from _each(shape or (), "equal", sizes, f"the sizes of input {number} and those that it has to have")

    return rule


def _labels(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    data, labels, weights = shapes[:3]
    if data and len(data) > 1:
        yield from _each(labels or (), "equal", [data[0], *data[2:]], "the sizes of the labels and of the data")
        yield from _each(weights or (), "equal", data[1:2], "the number of the weights and of the classes")


def _attention(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    query, key, value, lengths = shapes[0], shapes[1], shapes[2], shapes[6]
    for shape in (key, value, lengths):
        yield from _each((shape or ())[:1], "equal", (query or ())[:1], "the batches of the queries and of another input")
    if key and value and len(key) == len(value) and len(key) > 2:
        yield Fit(value[-2], "equal", key[-2], "the numbers of values and of keys")


def _scales(node: Node, shapes: Sequence[Shape]) -> Iterator[Fit]:
    """One scale per block, or per element along one dimension; one zero point per scale."""
    data, scale, zeros = shapes[:3]
    if data and scale:
        axis, block = int(node.attrs.get("axis", 1)), int(node.attrs.get("block_size", 0))
        if -len(data) <= axis < len(data) and (len(scale) == len(data) if block > 0 else len(scale) == 1 and scale[0] != 1):
            wanted = list(data) if block > 0 else [data[axis]]
            if block > 0:
                wanted[axis] = -(-wanted[axis] // block) if isinstance(wanted[axis], int) else None
            yield from _each(scale, "equal", wanted, "the sizes of the scales and those that the data have to have")
    yield from _each(zeros or (), "equal", scale or (), "the sizes of the zero points and of the scales")


_RULES: Mapping[str, Rule] = {
    "Attention": _attention,
    "Concat": _concat,
    "Conv": _channels(1),
    "ConvInteger": _channels(1),
    "ConvTranspose": _channels(1, is_turned=True),
    "DeformConv": _channels(1),
    "GatherElements": _aligned,
    "GatherND": _gather_rows,
    "Gemm": _product(0, 1),
    "DequantizeLinear": _scales,
    "GRU": _recurrent(3),
    "GridSample": _grid,
    "LSTM": _recurrent(4),
    "MatMul": _product(0, 1),
    "MatMulInteger": _product(0, 1),
    "NegativeLogLikelihoodLoss": _labels,
    "PRelu": _slope,
    "QLinearConv": _channels(3),
    "QLinearMatMul": _product(0, 3),
    "QuantizeLinear": _scales,
    "RNN": _recurrent(1),
    "Scatter": _aligned,
    "ScatterElements": _aligned,
    "ScatterND": _scatter_rows,
    "SoftmaxCrossEntropyLoss": _labels,
}
