"""An image whose channels are scaled, shifted and passed through Relu before a convolution, as in pre-activation networks. A GPU
kernel applies this as it reads the image, which saves a launch, and writing the image and reading it again."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from partita.accelerators.tvm.bodies.body import element_of
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape
from partita.accelerators.tvm.kernels.shared.epilogue import folded
from partita.accelerators.tvm.kernels.shared.functions import at_least
from partita.accelerators.tvm.kernels.shared.kernel_io import Problem
from partita.graph.node import Node, NodeEntry


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
    weight = real_shape(node.inputs[1]) if node.op == "Conv" and not node.domain else None
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
