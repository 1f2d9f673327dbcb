"""The values of a graph during the rewrite: plain, [N, C, H, W], NHWC (`beside`), [N, H, W, C], or both."""

from __future__ import annotations

from itertools import dropwhile

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.blocked import origin_metadata
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.layouts.scales import Scaling
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry, frozen_attrs
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
        metadata = origin_metadata(origin)
        if moving == sorted(moving):
            inputs = (entry, *self.sizes(shape, f"{name}_shape"))
            node = Node(name, "Reshape", inputs, output_names=(name,), output_types=(value_type,), metadata=metadata)
        else:
            node = Node(name, "Transpose", (entry,), frozen_attrs({"perm": perm}), (name,), (value_type,), metadata=metadata)
        return self.rewriter.keep(node)

    def unsigned(self, entry: NodeEntry, is_beside: bool) -> NodeEntry:
        """The bytes as uint8: 128 is added to int8."""
        read = self.need_beside(entry) if is_beside else self.rewriter.value(entry)
        kind = read.type
        assert isinstance(kind, TensorType)
        if kind.dtype == "uint8":
            return read
        if read not in self._unsigned:
            name = self.name(f"{entry.name}_unsigned")
            metadata = origin_metadata(entry.node)
            value_type = TensorType("uint8", kind.shape)
            types = (value_type,)
            node = Node(name, "Shift", (read,), output_names=(name,), output_types=types, domain=DOMAIN, metadata=metadata)
            self._unsigned[read] = self.rewriter.keep(node)[0]
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
