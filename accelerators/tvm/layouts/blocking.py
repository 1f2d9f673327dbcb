"""Blocked layouts for the results of convolutions, up to the first reader that needs a plain value.

One walk in the graph's order. A convolution makes a blocked value, and reads one if there is one (the first reads the plain
image). Pools, element-wise ops and joins of channels stay blocked. Any other op reads a plain value. Each form of a value, plain
or blocked, is made once, at its first use; a value of one pixel is the same in both forms, and takes a reshape that moves
nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.blocked import (
    DOMAIN,
    IMAGES,
    ORIGIN,
    Value,
    blocked_constant,
    blocked_type,
    dtype_of,
    move,
    on_blocks,
    origin_metadata,
    origins_of,
)
from partita.accelerators.tvm.kernels.moves.enlarging import whole_factors
from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.kernels.shared.elementwise import ELEMENTWISE
from partita.accelerators.tvm.kernels.shared.window import Kind, Window, make_window, placement, window_attributes
from partita.accelerators.tvm.layouts.transposing import Phases, find_phases
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, has_extents, is_less, is_multiple
from partita.graph.build import constant
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import Array, TensorType
from partita.partition.matcher import find_matches
from partita.partition.pattern import Pattern
from partita.passes.constants import Namer
from partita.passes.decompose.halves import is_half
from partita.passes.decompose.resizing import has_constant_sizes, mixtures
from partita.passes.registry import REQUESTS, register_pass


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


MOSTLY_PADDING = 0.6
"""If less than this share of a convolution's products meets the image, its kernel skips taps that meet only padding, at the price
of two loops of variable length. A weight that is infinite or NaN turns the zeros of the padding into NaN, so a filter with such a
weight skips nothing."""


@register_pass("BlockChannels", keeps=REQUESTS, family="tvm")
def block(graph: Graph, machine: Machine) -> Graph:
    """Convolutions, and what follows them element by element, on layouts with channels in blocks of a vector's lanes. Linear."""
    with collector_paused():
        return _Blocking(graph, machine.lanes).run()


class _Blocking:
    """The walk; a method for each kind of op returns the op on blocked values, or None if the op stays as it is."""

    def __init__(self, graph: Graph, lanes: int) -> None:
        self.graph = graph
        self.wanted = set(graph.outputs)
        self.lanes = lanes
        self.forms = Forms(graph, lanes)
        self.rewriter = self.forms.rewriter
        self.values = self.forms.blocked

    def run(self) -> Graph:
        shuffles = {node: shuffle for shuffle in find_shuffles(self.graph) for node in shuffle.nodes}
        for node in self.graph.nodes:
            shuffle = shuffles.get(node)
            if shuffle is not None and shuffle.source in self.values:
                if node is shuffle.nodes[-1]:
                    self._keep(node, attrs.evolve(self.forms.settled(shuffle.source), shuffle=shuffle.rows))
                continue
            blocked = self._blocked(node) if node.is_op and not node.domain else None
            if blocked is None:
                for entry in (*node.inputs, *node.captures):
                    if entry is not None:
                        self.forms.need_plain(entry)
                self.rewriter.keep(node)
                continue
            self.rewriter.keep(node, blocked)
            shape = real_shape(node[0])
            assert shape is not None and len(shape) == 4
            self._keep(node, Value(blocked[0], shape, int(blocked.attrs.get("shuffled", 1))))
        if not self.values:
            return self.graph
        return self.rewriter.finish(nodes=())

    def _keep(self, node: Node, value: Value) -> None:
        """Records the blocked form of the node's value."""
        self.values[node[0]] = value
        if node[0] in self.wanted:
            self.forms.need_plain(node[0])

    # -- ops -----------------------------------------------------------------------------------------------

    def _blocked(self, node: Node) -> Node | None:
        """The op on blocked values; None if it stays as it is."""
        shape = real_shape(node[0])
        if shape is None or len(shape) != 4 or 0 in shape or len([name for name in node.output_names if name]) != 1:
            return None
        if node.op in ELEMENTWISE:
            return self._elementwise(node, shape)
        visit = RULES.get(str(node.op))
        return None if visit is None else visit(self, node, shape)

    def _convolution(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        window, weight = make_window(node, real_shape), node.inputs[1]
        assert node.inputs[0] is not None
        if window is None or weight is None or weight.node.value is None:
            return None
        if len(node.inputs) > 2 and node.inputs[2] is not None and node.inputs[2].node.value is None:
            return None
        channels, groups = (real_shape(node.inputs[0]) or ())[1], int(node.attrs.get("group", 1))
        rest = tuple(None if e is None else self.rewriter.value(e) for e in node.inputs[1:])
        rest = rest[:1] if rest[1:] == (None,) else rest
        pending = self.values.get(node.inputs[0])
        rows = 1 if pending is None else pending.shuffle
        if groups == channels == shape[1] and groups > 1:
            return self._depthwise(node, window, rest, shape, rows)
        plain = node.inputs[0] not in self.values and groups == 1 and channels <= 2 * self.lanes
        read = self.rewriter.value(node.inputs[0])
        if not plain:
            read = pending.entry if pending is not None else self.forms.need_blocked(node.inputs[0], node).entry
        more = {"plain": int(plain), "channels": channels, "outs": shape[1], "group": groups, "shuffle": rows}
        join = read.node
        joined = self._joined(node.inputs[0], join, window)
        if joined:
            read, rest = joined[0], (*rest, *[None] * (IMAGES - 1 - len(rest)), *joined[1:])
        if not plain and window.share_inside < MOSTLY_PADDING and np.isfinite(weight.node.value).all():
            more["skips_padding"] = 1
        convolution = on_blocks(node, (read, *rest), shape, self.lanes, **window_attributes(window), **more)
        if not joined:
            return convolution
        return convolution.evolve(metadata={**node.metadata, ORIGIN: "\n".join([*origins_of(node), *origins_of(join)])})

    def _joined(self, entry: NodeEntry, join: Node, window: Window) -> tuple[NodeEntry, ...]:
        """The operands of a Concat that only this convolution reads, which copies its image anyway; empty for any other image."""
        is_join = (join.domain, join.op) == (DOMAIN, "Concat") and not window.is_inside
        alone = is_join and entry not in self.wanted and len(self.graph.consumers(entry)) == 1
        return tuple(join.reads) if alone else ()

    def _depthwise(
        self, node: Node, window: Window, rest: tuple[NodeEntry | None, ...], shape: tuple[int, ...], rows: int
    ) -> Node:
        """A depthwise convolution; a shuffle before it is deferred until after it."""
        assert node.inputs[0] is not None
        if rows == 1:
            return self._window(node, window, rest, shape, op="DepthwiseConv")
        order = np.arange(shape[1]).reshape(-1, rows).T.reshape(-1)
        turned = []
        for entry in rest:
            assert entry is not None and entry.node.value is not None
            turned.append(self.forms.new_constant(entry.node.value[order], f"{entry.name}_unshuffled"))
        inputs = (self.values[node.inputs[0]].entry, *turned)
        convolution = on_blocks(node, inputs, shape, self.lanes, **window_attributes(window), shuffled=rows)
        return convolution.evolve(op="DepthwiseConv")

    def _transposed(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        """A convolution for each kind of phases, and an interleaving of the phases."""
        source, phases = node.inputs[0], find_phases(node, self.lanes)
        if phases is None or source is None:
            return None
        parts = tuple(self._phases(node, source, phases, kind) for kind in phases.kinds)
        dealt = {"strides": phases.strides, "pads": phases.before, "taps": phases.taps, "phases": phases.window(phases.alike).out}
        out = {"result": list(shape[2:]), **{name: list(pair) for name, pair in dealt.items()}}
        return on_blocks(node, parts, shape, self.lanes, **out).evolve(op="Interleave")

    def _phases(self, node: Node, source: NodeEntry, phases: Phases, kind: Kind) -> NodeEntry:
        """The convolution that makes the phases of a kind."""
        image, name = real_shape(source) or (), self.forms.name(f"{node.name}_phases")
        weight, *biases = [entry.node.value for entry in node.reads[1:]]
        arrays = [phases.weights(weight, kind), *(phases.bias(bias, kind) for bias in biases)]  # type: ignore[arg-type]
        rest = [self.forms.new_constant(a, f"{name}_{i}") for i, a in enumerate(arrays)]
        window, read, outs = phases.window(kind), self.forms.need_blocked(source, node).entry, phases.outs(kind)
        shape, more = (image[0], outs, *window.out), {"plain": 0, "channels": image[1], "outs": outs, "group": 1, "shuffle": 1}
        inner = on_blocks(node, (read, *rest), shape, self.lanes, **window_attributes(window), **more)
        origin = origin_metadata(node)
        return self.rewriter.keep(inner.evolve(name=name, op="Conv", output_names=(name,), metadata=origin))[0]

    def _resize(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        source, image = node.inputs[0], real_shape(node.inputs[0])
        if source is None or image is None or not has_constant_sizes(node):
            return None
        is_open = any(isinstance(size, Extent) for size in (*image[2:], *shape[2:]))
        from_corner = node.attrs.get("coordinate_transformation_mode") == "asymmetric" and node.attrs.get("mode") == "linear"
        if not (self._reads_blocks(node) or (is_open and from_corner)):  # TVM refuses its own code for this.
            return None
        if is_open:
            return self._enlarged(node, source, shape)
        axes = mixtures(node, self.graph, image, shape)
        if axes is None:
            return None
        arrays = [array for pair in axes for array in pair]
        rest = [self.forms.new_constant(a, f"{node.name}_mixture_{i}") for i, a in enumerate(arrays)]
        nearest = all((shares == np.array([1, 0])).all() for _, shares in axes)
        more = {"image": list(image[2:]), "result": list(shape[2:]), "nearest": int(nearest)}
        inputs = (self.forms.need_blocked(source, node).entry, *rest)
        return on_blocks(node, inputs, shape, self.lanes, **more).evolve(op="Resize")

    def _enlarged(self, node: Node, source: NodeEntry, shape: tuple[int, ...]) -> Node | None:
        """A resize of an image of dynamic size by integer factors."""
        image = real_shape(source)
        assert image is not None
        times = whole_factors(node, image[2:], shape[2:]) if image[:2] == shape[:2] else None
        if times is None:
            return None
        more = {"image": list(image[2:]), "result": list(shape[2:]), "times": list(times)}
        inputs = (self.forms.need_blocked(source, node).entry,)
        return on_blocks(node, inputs, shape, self.lanes, **more).evolve(op="Enlarge")

    def _window(
        self, node: Node, window: Window, rest: tuple[NodeEntry | None, ...], shape: tuple[int, ...], op: str = ""
    ) -> Node:
        assert node.inputs[0] is not None
        read = self.forms.need_blocked(node.inputs[0], node).entry
        windowed = on_blocks(node, (read, *rest), shape, self.lanes, **window_attributes(window))
        return windowed.evolve(op=op or node.op)

    def _pool(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        window = make_window(node, real_shape)
        if window is None or node.inputs[0] not in self.values:
            return None
        last = [(o - 1) * s - b for o, s, b in zip(window.out, window.strides, window.before)]
        if not all(is_less(start, size) for start, size in zip(last, window.sizes)):
            return None
        if node.attrs.get("count_include_pad", 0) and not self._within_padding(node, window, last):
            return None
        return self._window(node, window, (), shape)

    def _within_padding(self, node: Node, window: Window, last: list[int]) -> bool:
        """True if no window reaches beyond the padding, where positions do not count in a mean."""
        *_, after = placement(node, window.sizes, window.taps)
        explicit = node.attrs.get("auto_pad", "NOTSET") == "NOTSET"
        return explicit and all(is_less(a + s, n + p + 1) for a, s, n, p in zip(last, window.span, window.sizes, after))

    def _reads_blocks(self, node: Node) -> bool:
        """True if the op reads blocked values: its image is blocked already, or it has no other kernel for the element type."""
        return node.inputs[0] in self.values or is_blocked_alone(node)

    def _global(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        if node.inputs[0] is None or not self._reads_blocks(node):
            return None
        read = self.forms.need_blocked(node.inputs[0], node).entry
        return on_blocks(node, (read,), shape, self.lanes, channels=shape[1])

    def _concat(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        if node.attrs.get("axis") not in (1, -3) or not any(entry in self.values for entry in node.reads):
            return None
        if not all(is_multiple((real_shape(entry) or (0, 1))[1], self.lanes) for entry in node.reads):
            return None
        inputs: list[NodeEntry] = []
        for entry in node.reads:
            read = self.forms.need_blocked(entry, node).entry
            joined = (read.node.domain, read.node.op) == (DOMAIN, "Concat")
            inputs += read.node.reads if joined else [read]
        return on_blocks(node, tuple(inputs), shape, self.lanes)

    def _elementwise(self, node: Node, shape: tuple[int, ...]) -> Node | None:
        if not any(entry in self.values for entry in node.reads):
            return None
        ways = [None if entry is None else self._operand(node, entry, shape) for entry in node.inputs]
        if any(entry is not None and way is None for entry, way in zip(node.inputs, ways)):
            return None
        inputs = tuple(None if way is None else way() for way in ways)
        return node.evolve(inputs=inputs, output_types=(blocked_type(shape, self.lanes, dtype_of(node[0])),))

    def _operand(self, node: Node, entry: NodeEntry, shape: tuple[int, ...]) -> Callable[[], NodeEntry] | None:
        """A function that turns the operand of an element-wise op into a blocked one; None if that cannot be done."""
        own, array = real_shape(entry), entry.node.value
        if own is None:
            return None
        aligned = (1,) * (4 - len(own)) + own
        if array is not None and array.size == 1:
            return lambda: self.rewriter.value(entry)
        if array is not None:
            if aligned != (1, shape[1], 1, 1):
                return None
            return lambda: self.forms.blocked_constant(entry)
        if len(own) != 4 or own[1] != shape[1] or own[0] not in (shape[0], 1) or own[2:] not in (shape[2:], (1, 1)):
            return None
        return lambda: self.forms.need_blocked(entry, node).entry


RULES: dict[str, Callable[[_Blocking, Node, tuple[int, ...]], Node | None]] = {
    "Conv": _Blocking._convolution,
    "MaxPool": _Blocking._pool,
    "AveragePool": _Blocking._pool,
    "GlobalAveragePool": _Blocking._global,
    "LRN": _Blocking._global,
    "ConvTranspose": _Blocking._transposed,
    "Resize": _Blocking._resize,
    "Upsample": _Blocking._resize,
    "Concat": _Blocking._concat,
}


BLOCKED_ALONE = ops("resizing") | {"LRN"}
"""Ops that have kernels on plain values for float32 alone."""


def is_blocked_alone(node: Node) -> bool:
    """True for a half-precision op that has no kernel on plain values."""
    return node.op in BLOCKED_ALONE and is_half(node.inputs[0])


def has_blocked_kernel(node: Node, graph: Graph, machine: Machine) -> bool:
    """True if `blocking` gives the half-precision op a kernel, whichever op makes its image."""
    image, result = real_shape(node.inputs[0]), real_shape(node[0])
    is_image = image is not None and result is not None and len(image) == len(result) == 4 and 0 not in (*image, *result)
    if machine.is_gpu or node.domain or not is_image or image is None or result is None:
        return False
    if node.op == "ConvTranspose":
        return find_phases(node, machine.lanes) is not None
    if node.op in ops("resizing"):
        return has_constant_sizes(node) and mixtures(node, graph, image, result) is not None
    return node.op == "LRN"


@attrs.frozen(slots=True)
class Shuffle:
    """A channel shuffle of three nodes."""

    source: NodeEntry
    """The shuffled value, [N, C, H, W]."""
    rows: int
    """Rows of the matrix that is transposed."""
    nodes: tuple[Node, Node, Node]
    """Reshape, Transpose, Reshape."""


def _splits_channels(node: Node) -> bool:
    """True for a Reshape of [N, C, H, W] to [N, rows, columns, H, W]."""
    given, split = (real_shape(node.inputs[0]), real_shape(node[0])) if node.op == "Reshape" else (None, None)
    if given is None or split is None or len(given) != 4 or len(split) != 5:
        return False
    return (split[0], *split[3:]) == (given[0], *given[2:])


def _swaps_rows(node: Node) -> bool:
    """True for a Transpose that swaps rows and columns of [N, rows, columns, H, W]."""
    return node.op == "Transpose" and tuple(node.attrs.get("perm", ())) == (0, 2, 1, 3, 4)


SHUFFLE = Pattern(_splits_channels, _swaps_rows, "Reshape")


def find_shuffles(graph: Graph) -> list[Shuffle]:
    """The shuffles whose inner values no other node reads. Linear."""
    shuffles = []
    for first, turn, last in find_matches(graph, SHUFFLE) if any(map(_swaps_rows, graph.nodes)) else ():
        source, split = first.inputs[0], real_shape(first[0])
        if source is not None and split is not None and real_shape(last[0]) == real_shape(source):
            shuffles.append(Shuffle(source, split[1], (first, turn, last)))
    return shuffles
