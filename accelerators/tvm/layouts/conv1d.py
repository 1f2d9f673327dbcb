"""1-D signals as images of one row, for three reasons. Only 2-D convolutions have kernels for a dynamic length. With a dynamic
batch, the 1-D kernel cannot take fewer positions than a vector has lanes. Transposed convolutions have kernels for images alone.

A convolution of a signal makes an image, and reads one if there is one. Pools, element-wise ops, joins of channels and quantizing
by one scale stay on images. Any other op reads the signal: the same elements under another shape, which takes no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators.tvm.bodies.quantized import is_weight
from partita.accelerators.tvm.kernels.shared.elementwise import ELEMENTWISE
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, Size, sizes_of
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import TensorType
from partita.passes.constants import Namer
from partita.passes.registry import REQUESTS, register_pass

POOLS = ops("pool") - {"LpPool"}
"""Windowed ops that read and make images."""

BEFORE: Mapping[str, Sequence[int]] = {"kernel_shape": (1,), "strides": (1,), "dilations": (1,), "output_padding": (0,)}
"""The row's value of each attribute, placed before the signal's; pads get a zero before each of theirs."""


@register_pass("LiftConv1d", keeps=REQUESTS, family="tvm")
def lift_conv1d(graph: Graph, machine: Machine) -> Graph:
    """1-D convolutions as 2-D ones of a single row: transposed ones, and those of dynamic length, or of dynamic batch and fewer
    positions than a vector has lanes. Linear."""
    if not any(_begins(node, machine.lanes) for node in graph.nodes):
        return graph
    return _Images(graph, machine.lanes).run()


def _begins(node: Node, lanes: int) -> bool:
    """True for a convolution by a constant that is lifted to two dimensions."""
    if node.op not in ops("convolution") or node.domain or node.attrs.get("output_shape") or node.inputs[0] is None:
        return False
    given, result = _signal(node.inputs[0]), _signal(node[0])
    if given is None or result is None or not all(entry is None or _is_constant(entry) for entry in node.inputs[1:]):
        return False
    if node.op == "ConvTranspose":
        return True
    is_any = any(isinstance(size, Extent) for sizes in (given, result) for size in (sizes[0], sizes[2]))
    return is_any and (isinstance(result[2], Extent) or result[2] < lanes)


def _is_constant(entry: NodeEntry) -> bool:
    """True for a constant, or a quantized constant whose scales do not run along positions."""
    if entry.node.value is not None:
        return True
    return is_weight(entry) and entry.node.attrs.get("axis", 1) in (0, 1) and not entry.node.attrs.get("block_size")


def _signal(entry: NodeEntry) -> tuple[Size, ...] | None:
    """The sizes of signals; None for anything else."""
    sizes = sizes_of(entry.type)
    return sizes if sizes is not None and len(sizes) == 3 else None


def _is_quantizing(node: Node) -> bool:
    """True if the node changes nothing but the element type."""
    scales = [entry for entry in node.inputs[1:] if entry is not None]
    alike = all(entry.node.value is not None and entry.node.value.size == 1 for entry in scales)
    return node.op in ops("quantizing") and not node.domain and bool(scales) and alike


class _Images:
    """Rewrites the graph in one walk in its order."""

    def __init__(self, graph: Graph, lanes: int) -> None:
        self.graph = graph
        self.lanes = lanes
        self.rewriter = Rewriter(graph)
        self.images: dict[NodeEntry, NodeEntry] = {}
        """The images, by the signals of the old graph."""
        self._plain: set[NodeEntry] = set()
        self._name = Namer(graph)

    def run(self) -> Graph:
        for node in self.graph.nodes:
            image = self._image(node) if node.is_op and not node.domain and len(node.output_names) == 1 else None
            if image is None:
                for entry in (*node.reads, *node.captures):
                    self._need_signal(entry)
                self.rewriter.keep(node)
            else:
                self.images[node[0]] = self.rewriter.keep(node, image)[0]
        for entry in self.graph.outputs:
            self._need_signal(entry)
        return self.rewriter.finish(nodes=())

    def _image(self, node: Node) -> Node | None:
        """The op on images; None if it stays as it is."""
        sizes = _signal(node[0])
        if sizes is None:
            return None
        if _begins(node, self.lanes):
            read, *rest = node.inputs
            assert read is not None
            weight = [None if entry is None else self._with_row(entry) for entry in rest[:1]]
            others = [None if entry is None else self.rewriter.value(entry) for entry in rest[1:]]
            return self._evolved(node, sizes, (self._need_image(read), *weight, *others))
        if not any(entry in self.images for entry in node.reads):
            return None
        if _is_quantizing(node):
            return self._quantized(node)
        if node.op in POOLS:
            return self._evolved(node, sizes, (self._need_image(node.reads[0]),))
        if node.op in ELEMENTWISE and all(self._is_operand(entry, sizes) for entry in node.reads):
            return self._evolved(node, sizes, tuple([None if e is None else self._operand(e) for e in node.inputs]))
        if node.op == "Concat" and node.attrs.get("axis") in (1, -2) and all(_signal(entry) for entry in node.reads):
            joined = node.evolve(attrs={**node.attrs, "axis": 1})
            return self._evolved(joined, sizes, tuple([self._need_image(entry) for entry in node.reads]))
        return None

    def _quantized(self, node: Node) -> Node:
        """The quantizing op, reading an image."""
        read, *scales = node.inputs
        assert read is not None
        others = [None if entry is None else self.rewriter.value(entry) for entry in scales]
        return node.evolve(inputs=(self._need_image(read), *others), output_types=(_image_type(node[0], _signal(node[0]) or ()),))

    @staticmethod
    def _evolved(node: Node, sizes: Sequence[Size], inputs: tuple[NodeEntry | None, ...]) -> Node:
        """The op with these inputs, its attributes and type converted from signals to images."""
        attributes: dict[str, Any] = dict(node.attrs)
        attributes |= {name: [*row, *attributes[name]] for name, row in BEFORE.items() if attributes.get(name)}
        if attributes.get("pads"):
            first, last = attributes["pads"]
            attributes["pads"] = [0, first, 0, last]
        return node.evolve(inputs=inputs, attrs=attributes, output_types=(_image_type(node[0], sizes),))

    def _is_operand(self, entry: NodeEntry, sizes: Sequence[Size]) -> bool:
        """True if an element-wise op on images can read it: a signal of these sizes, a scalar, or one number for each channel."""
        array = entry.node.value
        if array is not None:
            return array.size == 1 or array.shape in ((1, sizes[1], 1), (sizes[1], 1))
        return _signal(entry) == tuple(sizes)

    def _operand(self, entry: NodeEntry) -> NodeEntry:
        """The image of a signal, or a constant with a row axis."""
        array = entry.node.value
        if array is None:
            return self._need_image(entry)
        return self.rewriter.value(entry) if array.size == 1 else self._with_row(entry)

    def _need_image(self, entry: NodeEntry) -> NodeEntry:
        """The image of a signal."""
        if entry not in self.images:
            self._plain.add(entry)
            if _is_quantizing(entry.node):  # The convolution has to read the DequantizeLinear itself to multiply integers.
                name = self._name(f"{entry.name}_image")
                self.images[entry] = self.rewriter.keep(self._quantized(entry.node).evolve(name=name, output_names=(name,)))[0]
                return self.images[entry]
            kind = _image_type(entry, _signal(entry) or ())
            self.images[entry] = self._reshaped(entry, self.rewriter.value(entry), "image", kind)
        return self.images[entry]

    def _need_signal(self, entry: NodeEntry) -> None:
        """Makes the signal the value's form from here on."""
        if entry in self.images and entry not in self._plain:
            self._plain.add(entry)
            assert isinstance(entry.type, TensorType)
            self.rewriter.replace(entry, self._reshaped(entry, self.images[entry], "signal", entry.type))

    def _reshaped(self, entry: NodeEntry, read: NodeEntry, what: str, kind: TensorType) -> NodeEntry:
        name = self._name(f"{entry.name}_{what}")
        return self.rewriter.keep(Node(name, "Reshape", (read,), output_names=(name,), output_types=(kind,)))[0]

    def _with_row(self, entry: NodeEntry) -> NodeEntry:
        """A constant with a row axis of size 1 before its last one."""
        array = entry.node.value
        if array is None:
            assert isinstance(entry.type, TensorType)
            integers, *scales = entry.node.reads
            sizes, name = sizes_of(entry.type) or (), self._name(f"{entry.name}_row")
            kind = TensorType(entry.type.dtype, (*sizes[:-1], 1, sizes[-1]))
            inputs = (self._with_row(integers), *map(self.rewriter.value, scales))
            row = entry.node.evolve(name=name, inputs=inputs, output_names=(name,), output_types=(kind,))
            return self.rewriter.keep(row)[0]
        wider = array.reshape(*array.shape[:-1], 1, array.shape[-1])
        return self.rewriter.keep(constant(wider, self._name(f"{entry.name}_row")))[0]


def _image_type(entry: NodeEntry, sizes: Sequence[Size]) -> TensorType:
    """The type of the image of a signal of these sizes."""
    assert isinstance(entry.type, TensorType)
    return TensorType(entry.type.dtype, (*sizes[:2], 1, *sizes[2:]))
