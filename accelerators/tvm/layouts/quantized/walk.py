"""The walk that turns a graph's products into products of integers: its state with the values in both layouts, plain [N, C, H,
W] and NHWC [N, H, W, C] (`beside`), and the services for the rules of single ops.

A rule is a function of the walk and a node. It keeps a replacement of the node and returns True, or it returns None, and the
node stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import dropwhile
from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.blocked import origin_metadata
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.contraction.operands import only_reader, readers_of
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.layouts.quantized.scales import BYTE_TYPES, Scaling, is_lossless, scaling_of
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import Array, TensorType
from partita.passes.constants import Namer


@attrs.frozen(slots=True)
class Beside:
    """A value in NHWC."""

    entry: NodeEntry
    """The value in the new graph."""
    shape: tuple[int, ...]
    """The shape of the plain value."""


class Sides:
    """Both forms of each value of the old graph."""

    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)
        """The rewriter that makes the new graph."""
        self.beside: dict[NodeEntry, Beside] = {}
        """The values that have an NHWC form."""
        self.scalings: dict[Node, Scaling] = {}
        """The scaling of each new node of our domain that quantizes or dequantizes."""
        self._plain: set[NodeEntry] = set()
        self._unsigned: dict[NodeEntry, NodeEntry] = {}
        self._turned: dict[tuple[NodeEntry, tuple[int, ...]], Node] = {}
        self.name = Namer(graph)
        """Makes a name unique."""

    def keep(self, old: Node, new: Node, is_beside: bool) -> Node:
        """Keeps the new node in place of the old one."""
        shape = any_shape(old[0]) or ()
        if not is_beside:
            return self.rewriter.keep(old, new)
        new = new.evolve(output_types=(_turned(old[0]),))
        self.rewriter.keep(old, new)
        self.beside[old[0]] = Beside(new[0], shape)
        return new

    def named(self, node: Node, name: str, origin: Node, is_beside: bool, dtype: str = "") -> Node:
        """Keeps an additional node on behalf of `origin` under this name, of the same type but for `dtype`."""
        name, kind = self.name(name), _turned(origin[0]) if is_beside else origin.output_types[0]
        assert isinstance(kind, TensorType)
        types = (TensorType(dtype or kind.dtype, kind.shape),)
        metadata = origin_metadata(origin)
        return self.rewriter.keep(node.evolve(name=name, output_names=(name,), output_types=types, metadata=metadata))

    def need_plain(self, entry: NodeEntry) -> None:
        """Makes the plain form the value's form from here on."""
        if entry not in self.beside or entry in self._plain:
            return
        self._plain.add(entry)
        value = self.beside[entry]
        node = self._moved(value.entry, f"{entry.name}_plain", (0, 3, 1, 2), value.shape, entry.node)
        self.rewriter.replace(entry, node[0])

    def is_plain(self, entry: NodeEntry) -> bool:
        """True if the plain form exists."""
        return entry not in self.beside or entry in self._plain

    def need_beside(self, entry: NodeEntry) -> NodeEntry:
        """The value's NHWC form."""
        if entry not in self.beside:
            shape = any_shape(entry) or ()
            moved_shape = tuple(shape[d] for d in (0, 2, 3, 1))
            node = self._moved(self.rewriter.value(entry), f"{entry.name}_beside", (0, 2, 3, 1), moved_shape, entry.node)
            self.beside[entry] = Beside(node[0], shape)
            self._plain.add(entry)
        return self.beside[entry].entry

    def _moved(self, entry: NodeEntry, name: str, perm: tuple[int, ...], shape: tuple[int, ...], origin: Node) -> Node:
        """The transposed value; of a dequantized value the integers are transposed, and dequantized after that."""
        numbers, scaling = entry.node, self.scalings.get(entry.node)
        integers = numbers.inputs[0] if numbers.inputs else None
        if scaling is None or scaling.axis is not None or numbers.op != "DequantizeLinear" or integers is None:
            return self._turned_round(entry, name, perm, shape, origin)
        if (integers, perm) not in self._turned:
            self._turned[integers, perm] = self._turned_round(integers, f"{name}_integers", perm, shape, origin)
        name, types = self.name(name), (TensorType("float32", shape),)
        inputs = (self._turned[integers, perm][0], *numbers.inputs[1:])
        metadata = origin_metadata(origin)
        moved = numbers.evolve(name=name, inputs=inputs, output_names=(name,), output_types=types, metadata=metadata)
        self.scalings[moved] = scaling
        return self.rewriter.keep(moved)

    def _turned_round(
        self, entry: NodeEntry, name: str, perm: tuple[int, ...], shape: tuple[int, ...], origin: Node
    ) -> Node:
        """The transposed value; a reshape if that moves nothing."""
        name, (before,) = self.name(name), [any_shape(entry) or ()]
        value_type = TensorType(entry.type.dtype, shape)  # type: ignore[union-attr]
        moving = [d for d in perm if before[d] != 1]
        if moving == sorted(moving):
            return self._new(name, "Reshape", (entry, *self.sizes(shape, f"{name}_shape")), value_type, origin, {})
        return self._new(name, "Transpose", (entry,), value_type, origin, {"perm": perm})

    def _new(
        self, name: str, op: str, inputs: tuple[NodeEntry, ...], kind: TensorType, origin: Node, attributes: dict[str, Any],
        domain: str = "",
    ) -> Node:
        """Keeps a new node on behalf of `origin` under a name that is free."""
        given, metadata = frozen_attrs(attributes), origin_metadata(origin)
        return self.rewriter.keep(Node(name, op, inputs, given, (name,), (kind,), domain=domain, metadata=metadata))

    def new_of_ours(self, op: str, inputs: tuple[NodeEntry, ...], kind: TensorType, origin: Node, name: str) -> NodeEntry:
        """The value of a new op of our domain on behalf of `origin`."""
        return self._new(self.name(name), op, inputs, kind, origin, {}, DOMAIN)[0]

    def unsigned(self, entry: NodeEntry, is_beside: bool) -> NodeEntry:
        """The bytes as uint8: 128 is added to int8."""
        read = self.need_beside(entry) if is_beside else self.rewriter.value(entry)
        kind = read.type
        assert isinstance(kind, TensorType)
        if kind.dtype == "uint8":
            return read
        if read not in self._unsigned:
            as_uint8 = TensorType("uint8", kind.shape)
            self._unsigned[read] = self.new_of_ours("Shift", (read,), as_uint8, entry.node, f"{entry.name}_unsigned")
        return self._unsigned[read]

    def low(self, entry: NodeEntry, name: str) -> NodeEntry:
        """A constant without its leading axes of size 1, which broadcasting adds again; any other value unchanged."""
        array = entry.node.value
        if array is None or array.shape[:1] != (1,):
            return entry
        sizes = list(dropwhile(lambda size: size == 1, array.shape))
        return self.new_constant(array.reshape(sizes), name)

    def new_constant(self, array: Array, name: str) -> NodeEntry:
        """A new constant."""
        return self.rewriter.keep(constant(array, self.name(name)))[0]

    def sizes(self, shape: tuple[int, ...], name: str) -> tuple[NodeEntry, ...]:
        """The shape constant of a Reshape to these sizes; empty for dynamic sizes, which the Reshape's type holds."""
        if any(isinstance(size, Extent) for size in shape):
            return ()
        return (self.new_constant(np.array(shape, np.int64), name),)


def _turned(entry: NodeEntry) -> TensorType:
    known, shape = entry.type, any_shape(entry) or ()
    assert isinstance(known, TensorType)
    return TensorType(known.dtype, tuple(shape[d] for d in (0, 2, 3, 1)))


READERS = ops("convolution", "matmul", "resizing") | {"QuantizeLinear"}
"""Ops that can read integers if their inputs are dequantized."""

MOVES = ops("copying") | {"Pad"}
"""Ops whose results consist of elements of their inputs."""


class QuantizingWalk:
    """The old graph, both forms of its values, and their scalings."""

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.graph = graph
        self.lanes = machine.lanes
        """Number of 32-bit lanes of a vector register."""
        self.is_for_gpu = machine.is_gpu
        """True if the kernels are for a GPU."""
        self.readers = readers_of(graph)
        self.sides = Sides(graph)
        self.rewriter = self.sides.rewriter
        self.divided: dict[Node, float] = {}
        """Ops after a product whose values are already divided by the scale of the QuantizeLinear, and that scale."""
        self._read_as_integers = _read_as_integers(graph)

    def is_read_as_integers(self, node: Node) -> bool:
        """True if a reader of the node's results can read integers, perhaps after more ops that only move elements."""
        return any(entry in self._read_as_integers for entry in node.outputs)

    def plain_integers(self, entry: NodeEntry) -> tuple[NodeEntry, Scaling] | None:
        """The integers that a plain value was dequantized from with a single scale; None if there are none."""
        numbers = self.rewriter.value(entry).node
        scaling = self.sides.scalings.get(numbers)
        if entry in self.sides.beside and not self.sides.is_plain(entry):
            return None
        if scaling is None or not scaling.is_plain or numbers.op != "DequantizeLinear" or numbers.inputs[0] is None:
            return None
        return numbers.inputs[0], scaling

    def stand_for(self, node: Node, source: NodeEntry, entry: NodeEntry | None) -> None:
        """Replaces a node that quantizes a value by the integers that the value was dequantized from."""
        assert entry is not None
        if source in self.sides.beside:
            self.sides.beside[node[0]] = attrs.evolve(self.sides.beside[source], entry=entry)
        else:
            self.rewriter.replace(node[0], entry)

    def operand(self, node: Node, array: Array, tail: int) -> NodeEntry:
        """A constant operand of an op of ours: a scalar, or one number for each channel followed by `tail` axes of size 1."""
        shaped = array.reshape(()) if array.size == 1 else array.reshape(-1, *[1] * tail)
        return self.sides.new_constant(shaped, f"{node.name}_operand")

    def integers(self, entry: NodeEntry) -> tuple[NodeEntry, Scaling] | None:
        """The integers that an NHWC value was dequantized from with a single scale; None if there are none."""
        value = self.sides.beside.get(entry)
        scaling = None if value is None else self.sides.scalings.get(value.entry.node)
        if value is None or scaling is None or scaling.axis is not None or value.entry.node.op != "DequantizeLinear":
            return None
        integers = value.entry.node.inputs[0]
        return None if integers is None or not scaling.is_plain else (integers, scaling)

    def quantized_like(self, node: Node, i: int, entry: NodeEntry, scaling: Scaling) -> NodeEntry:
        """The integers of a Concat's operand, quantized with the scaling of its result."""
        integers = self.integers(entry)
        if integers is not None and scaling.is_like(integers[1]):
            return integers[0]
        return self.quantize(node, self.sides.need_beside(entry), scaling, f"{node.name}_{i}")

    def keep_moved(self, node: Node, quantized: Node, scaling: Scaling | None) -> None:
        """Keeps an op that moves integers, and a DequantizeLinear after it."""
        if scaling is None:
            self.sides.keep(node, quantized, True)
            return
        moved = self.sides.named(quantized, f"{node.name}_integers", node, True, scaling.point.dtype.name)
        dequantized = node.evolve(op="DequantizeLinear", domain=DOMAIN, inputs=(moved[0], *self.operands(node, scaling)),
                                  attrs=frozen_attrs({}))
        self.sides.scalings[self.sides.keep(node, dequantized, True)] = scaling

    def quantize(self, node: Node, read: NodeEntry, scaling: Scaling, name: str) -> NodeEntry:
        """The value quantized with one scale, by a new node on behalf of `node`."""
        kind, inputs = TensorType(scaling.point.dtype.name, any_shape(read)), (read, *self.operands(node, scaling))
        return self.sides.new_of_ours("QuantizeLinear", inputs, kind, node, name)

    def operands(self, node: Node, scaling: Scaling) -> list[NodeEntry]:
        """The constants that hold a single scale and its zero point."""
        return [self.operand(node, np.asarray(array), 0) for array in (scaling.scale, scaling.point)]

    def sizes(self, node: Node, sizes: tuple[int, ...]) -> tuple[NodeEntry, ...]:
        """The second input of a Reshape to these sizes on behalf of the node; empty if the sizes are dynamic."""
        return self.sides.sizes(sizes, f"{node.name}_shape")

    def factor(self, array: Array, name: str) -> NodeEntry:
        """The constant factor of a product: a scalar, or one number for each channel."""
        return self.sides.new_constant(array.reshape(-1) if array.size > 1 else array.reshape(()), name)

    def helper(
        self, node: Node, op: str, inputs: tuple[NodeEntry, ...], shape: tuple[int, ...], attributes: dict[str, Any],
        dtype: str = "int32", domain: str = "",
    ) -> NodeEntry:
        """The value of a new node that computes a part of the given node."""
        helper = node.evolve(op=op, inputs=inputs, attrs=frozen_attrs(attributes), domain=domain)
        name = self.sides.name(f"{node.name}_{op.lower()}")
        metadata = origin_metadata(node)
        types = (TensorType(dtype, shape),)
        return self.rewriter.keep(helper.evolve(name=name, output_names=(name,), output_types=types, metadata=metadata))[0]

    def dequantized(self, entry: NodeEntry | None) -> tuple[NodeEntry, Scaling] | None:
        """The bytes that an operand of a product was dequantized from, and their scaling, if it has a single scale."""
        scaling = None if entry is None else scaling_of(entry.node)
        if entry is None:
            return None
        if scaling is None or entry.node.op != "DequantizeLinear" or scaling.axis is not None:
            return self._moved_bytes(entry)
        source = entry.node.inputs[0]
        assert source is not None
        is_byte = isinstance(source.type, TensorType) and source.type.dtype in BYTE_TYPES
        return (source, scaling) if is_byte and source.node.value is None else None

    def _moved_bytes(self, entry: NodeEntry) -> tuple[NodeEntry, Scaling] | None:
        """The bytes of a value that was moved since it was dequantized."""
        integers = self.integers(entry) or self.plain_integers(entry)
        if integers is None or integers[1].point.dtype.itemsize != 1 or integers[0].node.value is not None:
            return None
        if entry in self.sides.beside:
            self.sides.beside[integers[0]] = attrs.evolve(self.sides.beside[entry], entry=integers[0])
        return integers


def _read_as_integers(graph: Graph) -> set[NodeEntry]:
    """The values that are quantized, or multiplied as integers, perhaps after ops that only move elements. Linear."""
    wanted: set[NodeEntry] = set()
    for node in reversed(graph.nodes):
        if node.op in READERS and not node.domain:
            wanted.update(node.reads[:2])
        elif node.op in MOVES and any(entry in wanted for entry in node.outputs):
            wanted.update(node.reads if node.op == "Concat" else node.reads[:1])
    return wanted


Rule = Callable[[QuantizingWalk, Node], bool | None]
"""Rewrites one op: True if the rule kept a replacement, None if the op stays as it is."""


def divide(walk: QuantizingWalk, node: Node, factor: Array) -> Array:
    """The factor, divided by the scale with which the result is quantized if all ops in between commute with that."""
    path, reader = [], only_reader(node[0], walk.readers)
    while reader is not None and _is_homogeneous(reader):
        path.append(reader)
        reader = only_reader(reader[0], walk.readers)
    scaling = None if reader is None or reader.op != "QuantizeLinear" else scaling_of(reader)
    if reader is None or scaling is None or not scaling.is_plain:
        return factor
    quotient = factor / np.float64(scaling.scale)
    if not is_lossless(quotient):
        return factor
    walk.divided.update(dict.fromkeys((*path, reader), float(scaling.scale)))
    return quotient.astype(np.float32)


def _is_homogeneous(node: Node) -> bool:
    """True if f(x / scale) = f(x) / scale, for a Clip once its bounds are divided too."""
    if node.domain or node.op not in ("Relu", "LeakyRelu", "Clip"):
        return False
    return node.op != "Clip" or (len(node.inputs) > 1 and all(entry.node.value is not None for entry in node.reads[1:]))
