"""A convolution with constant weights and its epilogue as one kernel: the part that all implementations on plain values share.

On a GPU the image may be normed: its channels are scaled, shifted and passed through Relu before the convolution, as in
pre-activation networks. The kernel applies this as it reads the image, which saves a launch, and writing the image and reading it
again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, folded, make_epilogue, plus_bias
from partita.accelerators.tvm.kernels.shared.functions import at_least
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.window import Convolved, Window, is_convolution, placement
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array


@attrs.frozen(slots=True, eq=False)
class NormedImage:
    """A normed image in a body."""

    source: NodeEntry
    """The image."""
    scale: int
    """Index of the body's input with the factors of the channels."""
    shift: int
    """Index of the body's input that is added to the channels."""
    nodes: frozenset[Node]
    """The ops of the norm."""

    @classmethod
    def of(cls, root: Node, problem: Problem) -> NormedImage | None:
        """The normed image that a convolution reads; None if it reads another one."""
        nodes, entry, operands = list[Node](), root.reads[0], list[NodeEntry]()
        for op in ("Relu", "Add", "Mul"):
            node = entry.node
            constants = [read for read in node.reads if problem.weight_at(read) is not None]
            if node.op != op or node.domain or len(constants) != (op != "Relu") or len(node.reads) > 2:
                return None
            nodes.append(node)
            operands += constants
            entry = next(read for read in node.reads if read not in constants)
        is_stored_alike = element_of(entry) == element_of(root.reads[0])
        if not is_stored_alike or not all(_is_of_channels(operand, entry) for operand in operands):
            return None
        shift, scale = (problem.positions[operand] for operand in operands)
        return cls(entry, scale, shift, frozenset(nodes))

    def numbers(self, given: Value, inputs: Sequence[Buffer], channel: Operand) -> Value:
        """Applies the norm to neighbouring elements of a channel of the image."""
        scale, shift = (read(inputs[i], (channel,)).spread(given.type.lanes) for i in (self.scale, self.shift))
        return at_least(given * scale + shift, 0.0)


def is_cut_off(node: Node) -> bool:
    """True for Relu."""
    return node.op == "Relu" and not node.domain


def shifts_channels(node: Node) -> bool:
    """True if the node adds a constant to each channel of an image."""
    return _joins_channels(node, "Add")


def scales_channels(node: Node) -> bool:
    """True if the node multiplies each channel of an image by a constant."""
    return _joins_channels(node, "Mul")


def reads_single_pixels(node: Node) -> bool:
    """True for a convolution of one tap, without groups."""
    weight = real_shape(node.inputs[1]) if is_convolution(node) else None
    return weight is not None and weight[2:] == (1,) * len(weight[2:]) and int(node.attrs.get("group", 1)) == 1


def _joins_channels(node: Node, op: str) -> bool:
    if node.op != op or node.domain:
        return False
    constants = [entry for entry in node.reads if entry.node.value is not None]
    others = [entry for entry in node.reads if entry.node.value is None]
    return len(constants) == len(others) == 1 and _is_of_channels(constants[0], others[0])


def _is_of_channels(entry: NodeEntry, image: NodeEntry) -> bool:
    """True if the value has one element for each of several channels of the image."""
    own, shape = real_shape(entry), real_shape(image)
    if own is None or shape is None or len(shape) < 3 or shape[1] == 1:
        return False
    return folded(own, shape, [(0, 1), (1, 2), (2, len(shape))]) == (1, shape[1], 1)


class PlainLayer(Protocol):
    """A convolution and its cut."""

    @property
    def weights(self) -> int:
        """Number of elements of the packed weights."""

    def pack(self, array: Array) -> Array:
        """The weights in the layout that the loops read."""

    def write(self, kernel: Kernel, source: Buffer, weight: Buffer, writer: Writer) -> None:
        """Writes all loops."""


def draft_layer(
    body: Body, schedule: str, cut: Callable[[Convolved], PlainLayer | None], normed: NormedImage | None = None
) -> Draft | None:
    """The kernel of the body's only convolution; None for any other body, or if `cut` returns None. It reads a value, or a normed
    image."""

    def cut_root(root: Node) -> PlainLayer | None:
        data, weight, output = (real_shape(entry) for entry in (*root.inputs[:2], root[0]))
        if data is None or weight is None or output is None or len(data) < 3 or 0 in (*data, *weight, *output):
            return None
        strides, dilations, before, _ = placement(root, data[2:], weight[2:])
        window = Window(data[2:], output[2:], weight[2:], strides, dilations, before)
        return cut(Convolved(data[0], window, data[1], weight[0], root.attrs.get("group", 1)))

    return draft_layer_of(body, schedule, is_convolution, cut_root, normed)


def draft_layer_of(
    body: Body,
    schedule: str,
    is_root: Callable[[Node], bool],
    cut: Callable[[Node], PlainLayer | None],
    normed: NormedImage | None = None,
) -> Draft | None:
    """The kernel of the body's only root."""
    roots = [node for node in body.ops if is_root(node)]
    layer = cut(roots[0]) if len(roots) == 1 else None
    if layer is None:
        return None
    root, problem = roots[0], Problem.of(body)
    given, (_, outs, *pixels) = shape_of(root.reads[0]), shape_of(root[0])
    rank = len(pixels)
    source, weight = problem.value_at(normed.source if normed else root.inputs[0]), problem.weight_at(root.inputs[1])
    if source is None or weight is None:
        return None
    biased = len(root.inputs) > 2 and root.inputs[2] is not None
    beside = {2: (outs, *(1,) * rank)} if biased else {}
    after = make_epilogue(body, root, plus_bias, [(0, 1), (1, 2), (2, 2 + rank)], beside, normed.nodes if normed else ())
    whole = (*given[:2], math.prod(given[2:]))
    if after is None or weight in after.operands or after.operands.get(source, whole) != whole:
        return None
    each = dict.fromkeys((normed.scale, normed.shift) if normed else (), (given[1],))
    shapes = {**after.operands, **each, source: whole, weight: (layer.weights,)}
    kernel, inputs, outputs = problem.kernel("convolution", shapes, [after.results] * len(problem.outputs))
    layer.write(kernel, inputs[source], inputs[weight], Writer(after, inputs, outputs))
    return problem.draft(kernel, schedule, {weight: layer.pack})
