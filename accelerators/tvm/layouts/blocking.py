"""Blocked layouts for what convolutions make, all the way to where somebody needs a plain value.

One walk in the graph's order. A convolution makes a blocked value, and reads one where there is one (the first reads the plain
image). Pools, element-wise ops, joins of channels keep it so. Anything else reads a plain value, made once where it is first
asked for; a value of one place is the same in both forms, and takes a reshape that moves nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from accelerators.tvm.fusion import ELEMENTWISE
from accelerators.tvm.layouts.blocked import Value, blocked_constant, blocked_type, move, on_blocks
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates.epilogue import static_shape
from accelerators.tvm.templates.window import Window, make_window, window_attributes
from graph.build import constant
from graph.graph import Graph
from graph.node import Node, NodeEntry
from graph.pauses import collector_paused
from graph.rewrite import Rewriter
from graph.types import TensorType


def block(graph: Graph, machine: Machine) -> Graph:
    """The graph with blocked values where convolutions are. Linear."""
    with collector_paused():
        return _Blocking(graph, machine.lanes).run()


class _Blocking:
    def __init__(self, graph: Graph, lanes: int) -> None:
        self.graph = graph
        self.lanes = lanes
        self.rewriter = Rewriter(graph)
        self.values: dict[NodeEntry, Value] = {}
        """Blocked values by the old graph's."""
        self.plain: set[NodeEntry] = set()
        """Those of them that have a plain form in the new graph too."""
        self.constants: dict[NodeEntry, NodeEntry] = {}
        """Blocked constants by the old graph's."""
        self.names = {name for node in graph.nodes for name in (node.name, *node.output_names)}

    def run(self) -> Graph:
        wanted = set(self.graph.outputs)
        for node in self.graph.nodes:
            made = self._blocked(node) if node.is_op and not node.domain else None
            if made is None:
                for entry in (*node.inputs, *node.captures):
                    if entry is not None:
                        self._need_plain(entry)
                self.rewriter.keep(node)
                continue
            self.rewriter.keep(node, made)
            shape = static_shape(node[0])
            assert shape is not None and len(shape) == 4
            self.values[node[0]] = Value(made[0], shape)
            if node[0] in wanted:
                self._need_plain(node[0])
        if not self.values:
            return self.graph
        return self.rewriter.finish()

    # -- values in both forms ------------------------------------------------------------------------------

    def _need_plain(self, entry: NodeEntry) -> None:
        """The plain form stands for the value from here on."""
        value = self.values.get(entry)
        if value is None or entry in self.plain:
            return
        self.plain.add(entry)
        name, made = self._name(f"{entry.name}_plain"), TensorType("float32", value.shape)
        if math.prod(value.sizes) == 1 and value.shape[1] % self.lanes == 0:
            shape = self.rewriter.keep(constant(np.array(value.shape, np.int64), self._name(f"{name}_shape")))
            node = Node(name, "Reshape", (value.entry, shape[0]), output_names=(name,), output_types=(made,))
        else:
            node = move("FromBlocked", name, value.entry, made, entry.node)
        self.rewriter.keep(node)
        self.rewriter.replace(entry, node[0])

    def _need_blocked(self, entry: NodeEntry, reader: Node) -> Value:
        """The value's blocked form, which this op reads."""
        known = self.values.get(entry)
        if known is not None:
            return known
        shape = static_shape(entry)
        assert shape is not None and len(shape) == 4
        name = self._name(f"{entry.name}_blocked")
        node = move("ToBlocked", name, self.rewriter.value(entry), blocked_type(shape, self.lanes), reader)
        made = Value(self.rewriter.keep(node)[0], shape)
        self.values[entry] = made
        self.plain.add(entry)
        return made

    def _constant(self, entry: NodeEntry) -> NodeEntry:
        """A constant's blocked form."""
        if entry not in self.constants:
            array = entry.node.value
            assert array is not None
            node = blocked_constant(array, self.lanes, self._name(f"{entry.name}_blocked"))
            self.constants[entry] = self.rewriter.keep(node)[0]
        return self.constants[entry]

    def _name(self, wanted: str) -> str:
        """The name, made unique."""
        made, count = wanted, 0
        while made in self.names:
            made, count = f"{wanted}_{count}", count + 1
        self.names.add(made)
        return made

    # -- ops -----------------------------------------------------------------------------------------------

    def _blocked(self, node: Node) -> Node | None:
        """The op on blocked values; None if it stays as it is."""
        shape = static_shape(node[0])
        if shape is None or len(shape) != 4 or 0 in shape or len([name for name in node.output_names if name]) != 1:
            return None
        if node.op in ELEMENTWISE:
            return self._elementwise(node, shape)
        visit = _OPS.get(str(node.op))
        return None if visit is None else visit(self, node, shape)

    def _convolution(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        window, weight = make_window(node), node.inputs[1]
        assert node.inputs[0] is not None
        if window is None or weight is None or weight.node.value is None:
            return None
        if len(node.inputs) > 2 and node.inputs[2] is not None and node.inputs[2].node.value is None:
            return None
        channels, groups = (static_shape(node.inputs[0]) or ())[1], int(node.attrs.get("group", 1))
        rest = tuple(None if e is None else self.rewriter.value(e) for e in node.inputs[1:])
        rest = rest[:1] if rest[1:] == (None,) else rest
        if groups == channels == shape[1] and groups > 1:
            return self._window(node, window, rest, shape, op="DepthwiseConv")
        plain = node.inputs[0] not in self.values and groups == 1 and channels <= 2 * self.lanes
        read = self.rewriter.value(node.inputs[0]) if plain else self._need_blocked(node.inputs[0], node).entry
        more = {"plain": int(plain), "channels": channels, "outs": shape[1], "group": groups}
        return on_blocks(node, (read, *rest), shape, self.lanes, **window_attributes(window), **more)

    def _window(
        self, node: Node, window: Window, rest: tuple[NodeEntry | None, ...], shape: tuple[int, ...], op: str = ""
    ) -> Node:
        assert node.inputs[0] is not None
        read = self._need_blocked(node.inputs[0], node).entry
        made = on_blocks(node, (read, *rest), shape, self.lanes, **window_attributes(window))
        return made.evolve(op=op or node.op)

    def _pool(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        window = make_window(node)
        if window is None or node.inputs[0] not in self.values:
            return None
        last = [(o - 1) * s - b for o, s, b in zip(window.out, window.strides, window.before)]
        if any(start >= size for start, size in zip(last, window.sizes)):
            return None
        if node.attrs.get("count_include_pad", 0) and not self._within_padding(node, window, last):
            return None
        return self._window(node, window, (), shape)

    def _within_padding(self, node: Node, window: Window, last: list[int]) -> bool:
        """Does no window reach beyond the padding? What is there counts in no mean."""
        after = (node.attrs.get("pads") or (0,) * 4)[2:]
        explicit = node.attrs.get("auto_pad", "NOTSET") == "NOTSET"
        return explicit and all(a + s <= n + p for a, s, n, p in zip(last, window.span, window.sizes, after))

    def _global(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        if node.inputs[0] not in self.values:
            return None
        return on_blocks(node, (self._need_blocked(node.inputs[0], node).entry,), shape, self.lanes)

    def _concat(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        whole = all((static_shape(entry) or (0, 1))[1] % self.lanes == 0 for entry in node.reads)
        if node.attrs.get("axis") not in (1, -3) or not whole or not any(e in self.values for e in node.reads):
            return None
        return on_blocks(node, tuple(self._need_blocked(e, node).entry for e in node.reads), shape, self.lanes)

    def _elementwise(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        if not any(entry in self.values for entry in node.reads):
            return None
        ways = [None if entry is None else self._operand(node, entry, shape) for entry in node.inputs]
        if any(entry is not None and way is None for entry, way in zip(node.inputs, ways)):
            return None
        made = tuple(None if way is None else way() for way in ways)
        return node.evolve(inputs=made, output_types=(blocked_type(shape, self.lanes),))

    def _operand(self, node: Node, entry: NodeEntry, shape: tuple[int, ...]) -> Callable[[], NodeEntry] | None:
        """How the operand of an element-wise op becomes one of blocked values; None if it cannot."""
        own, array = static_shape(entry), entry.node.value
        if own is None:
            return None
        aligned = (1,) * (4 - len(own)) + own
        if array is not None and array.size == 1:
            return lambda: self.rewriter.value(entry)
        if array is not None:
            if aligned != (1, shape[1], 1, 1):
                return None
            return lambda: self._constant(entry)
        if len(own) != 4 or own[1] != shape[1] or own[0] not in (shape[0], 1) or own[2:] not in (shape[2:], (1, 1)):
            return None
        return lambda: self._need_blocked(entry, node).entry


_OPS: dict[str, Callable[[_Blocking, Node, tuple[int, ...]], Node | None]] = {
    "Conv": _Blocking._convolution,
    "MaxPool": _Blocking._pool,
    "AveragePool": _Blocking._pool,
    "GlobalAveragePool": _Blocking._global,
    "Concat": _Blocking._concat,
}
