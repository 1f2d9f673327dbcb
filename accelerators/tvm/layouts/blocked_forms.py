"""The values of a graph during the rewrite: plain, blocked, or both. A form is made once, at its first use."""

from __future__ import annotations

import math

import numpy as np

from partita.accelerators.tvm.bodies.blocked import Value, blocked_constant, blocked_type, dtype_of, move
from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.sizes.extent import has_extents
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter
from partita.graph.types import Array, TensorType
from partita.passes.constants import Namer


class Forms:
    """The plain and the blocked form of each value of the old graph."""

    def __init__(self, graph: Graph, lanes: int) -> None:
        self.rewriter = Rewriter(graph)
        """The rewriter that makes the new graph."""
        self.lanes = lanes
        """Number of channels in a block."""
        self.blocked: dict[NodeEntry, Value] = {}
        """The values that have a blocked form."""
        self._plain: set[NodeEntry] = set()
        self._constants: dict[NodeEntry, NodeEntry] = {}
        self.name = Namer(graph)
        """Makes a name unique."""

    def need_plain(self, entry: NodeEntry) -> None:
        """Makes the plain form the value's form from here on."""
        if entry not in self.blocked or entry in self._plain:
            return
        value = self.settled(entry)
        self._plain.add(entry)
        name, value_type = self.name(f"{entry.name}_plain"), TensorType(dtype_of(entry), value.shape)
        if math.prod(value.sizes) == 1 and value.shape[1] % self.lanes == 0:
            sizes = [] if has_extents(value_type) else [self.new_constant(np.array(value.shape, np.int64), f"{name}_shape")]
            node = Node(name, "Reshape", (value.entry, *sizes), output_names=(name,), output_types=(value_type,))
        else:
            node = move("FromBlocked", name, value.entry, value_type, entry.node)
        self.rewriter.keep(node)
        self.rewriter.replace(entry, node[0])

    def need_blocked(self, entry: NodeEntry, reader: Node) -> Value:
        """The value's blocked form, for this reader."""
        if entry in self.blocked:
            return self.settled(entry)
        shape = real_shape(entry)
        assert shape is not None and len(shape) == 4
        name = self.name(f"{entry.name}_blocked")
        node = move("ToBlocked", name, self.rewriter.value(entry), blocked_type(shape, self.lanes, dtype_of(entry)), reader)
        value = Value(self.rewriter.keep(node)[0], shape)
        self.blocked[entry] = value
        self._plain.add(entry)
        return value

    def settled(self, entry: NodeEntry) -> Value:
        """A blocked value with its channels in order: a deferred shuffle is done now."""
        value = self.blocked[entry]
        if value.shuffle > 1:
            more = {"rows": value.shuffle, "channels": value.shape[1]}
            value_type = blocked_type(value.shape, self.lanes, dtype_of(entry))
            node = move("Shuffle", self.name(f"{entry.name}_shuffled"), value.entry, value_type, entry.node, more)
            value = self.blocked[entry] = Value(self.rewriter.keep(node)[0], value.shape)
        return value

    def blocked_constant(self, entry: NodeEntry) -> NodeEntry:
        """A constant's blocked form."""
        if entry not in self._constants:
            array = entry.node.value
            assert array is not None
            node = blocked_constant(array, self.lanes, self.name(f"{entry.name}_blocked"))
            self._constants[entry] = self.rewriter.keep(node)[0]
        return self._constants[entry]

    def new_constant(self, array: Array, name: str) -> NodeEntry:
        """A new constant."""
        return self.rewriter.keep(constant(array, self.name(name)))[0]
