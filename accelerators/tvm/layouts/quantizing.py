"""Products of quantized values as products of integers, with channels side by side all the way between them.

A model says DequantizeLinear, Conv, QuantizeLinear. Here the Conv becomes a Product of the integers, whose result is that of the
Conv; DequantizeLinear is left with other readers, or none. What is computed number by number, pools and joins keep channels side
by side; anything else reads a plain value, made once where it is first asked for. Whatever is not understood stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from accelerators.tvm.bodies.blocked import DOMAIN as BLOCKED
from accelerators.tvm.bodies.blocked import ORIGIN, origins_of
from accelerators.tvm.bodies.quantized import DOMAIN, is_weight
from accelerators.tvm.kernels.elementwise.selector import ELEMENTWISE
from accelerators.tvm.kernels.shared.operands import only_reader, readers_of
from accelerators.tvm.kernels.shared.shapes import any_shape
from accelerators.tvm.kernels.shared.window import Window, make_window, window_attributes
from accelerators.tvm.layouts.beside_forms import Sides
from accelerators.tvm.layouts.scales import Step, step_of, weight_of, whole_weight
from accelerators.tvm.machine.machine import Machine
from graph.graph import Graph
from graph.node import Node, NodeEntry, frozen_attrs
from graph.pauses import collector_paused
from graph.types import TensorType

Array = np.ndarray[Any, Any]

PLACE = Window((1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0))
"""A window of one place."""

QUANTIZED_OPS = frozenset("QuantizeLinear DequantizeLinear MatMulInteger".split())
"""A graph without any of these has no quantized values."""

INT32 = 6
"""ONNX's number for the element type."""

WORD = 4
"""An image of so many channels at most is read as it is given."""


def quantize(graph: Graph, machine: Machine) -> Graph:
    """The graph with products of integers where they are. Linear."""
    if all(node.op not in QUANTIZED_OPS for node in graph.nodes):
        return graph
    with collector_paused():
        return _Quantizing(graph, machine).run()


class _Quantizing:
    """The walk; a method for each kind of op says what stands for its value, or that it stays as it is."""

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.graph = graph
        self.lanes = machine.lanes
        self.readers = readers_of(graph)
        self.sides = Sides(graph)
        self.rewriter = self.sides.rewriter
        self.divided: dict[Node, float] = {}
        """Ops after a product by whose scale its numbers are divided already, and the scale."""

    def run(self) -> Graph:
        wanted = set(self.graph.outputs)
        for node in self.graph.nodes:
            changed = self._made(node) if node.is_op else None
            if changed is None:
                for entry in (*node.inputs, *node.captures):
                    if entry is not None:
                        self.sides.need_plain(entry)
                self.rewriter.keep(node)
            elif node[0] in wanted:
                self.sides.need_plain(node[0])
        return self.rewriter.finish(nodes=())

    def _made(self, node: Node) -> bool | None:
        """Makes what stands for the node's value; None if it stays as it is."""
        if node.domain or len([name for name in node.output_names if name]) != 1 or 0 in (any_shape(node[0]) or (0,)):
            return None
        if step_of(node) is not None:
            return self._rounding(node)
        if node.op in ELEMENTWISE:
            return self._elementwise(node, node)
        visit = _OPS.get(str(node.op))
        return None if visit is None else visit(self, node)

    # -- number by number ----------------------------------------------------------------------------------

    def _rounding(self, node: Node) -> bool | None:
        """QuantizeLinear or DequantizeLinear, with its scale and zero point as operands that are broadcast."""
        step, source = step_of(node), node.inputs[0]
        assert step is not None and source is not None
        if source.node.value is not None:
            return None
        before = self.rewriter.value(source).node if source not in self.sides.beside else self.sides.beside[source].entry.node
        if node.op == "QuantizeLinear" and step.is_plain and before.domain == DOMAIN and before.op == "DequantizeLinear":
            if step.is_like(self.sides.steps.get(before)):
                self._stands(node, source, before.inputs[0])
                return True
        is_beside = source in self.sides.beside
        shape = any_shape(source) or ()
        if is_beside and step.axis not in (None, 1):
            return None
        read = self.sides.beside[source].entry if is_beside else self.rewriter.value(source)
        tail = 0 if is_beside or step.axis is None else len(shape) - 1 - step.axis
        scale = np.float32(1.0) if node in self.divided else step.scale
        operands = [self._operand_constant(node, np.asarray(array), tail) for array in (scale, step.point)]
        own = self._own(node, (read, *operands), is_beside)
        self.sides.steps[own] = step
        return True

    def _stands(self, node: Node, source: NodeEntry, entry: NodeEntry | None) -> None:
        """What was dequantized and is quantized again is what it was."""
        assert entry is not None
        if source in self.sides.beside:
            self.sides.beside[node[0]] = attrs.evolve(self.sides.beside[source], entry=entry)
        else:
            self.rewriter.replace(node[0], entry)

    def _operand_constant(self, node: Node, array: Array, tail: int) -> NodeEntry:
        shaped = array.reshape(()) if array.size == 1 else array.reshape(-1, *[1] * tail)
        return self.sides.new_constant(shaped, f"{node.name}_operand")

    def _own(self, node: Node, inputs: tuple[NodeEntry, ...], is_beside: bool) -> Node:
        """The op in our domain."""
        quantized = node.evolve(domain=DOMAIN, inputs=inputs, attrs=frozen_attrs({}))
        return self.sides.keep(node, quantized, is_beside)

    def _elementwise(self, node: Node, original: Node) -> bool | None:
        """An op on values whose channels stand side by side, if one of them is."""
        shape = any_shape(node[0])
        if shape is None or len(shape) != 4 or not any(entry in self.sides.beside for entry in node.reads):
            return None
        ways = [None if entry is None else self._operand(entry, shape) for entry in node.inputs]
        if any(entry is not None and way is None for entry, way in zip(node.inputs, ways)):
            return None
        inputs = [None if way is None else way() for way in ways]
        if node in self.divided and node.op == "Clip":
            inputs[1:] = [self._bound(node, i) for i in range(1, len(inputs))]
        self.sides.keep(original, node.evolve(inputs=tuple(inputs)), True)
        return True

    def _bound(self, node: Node, i: int) -> NodeEntry | None:
        """A bound of a Clip whose numbers are divided by a scale, divided too."""
        entry = node.inputs[i]
        if entry is None or entry.node.value is None:
            return None
        return self.sides.new_constant(np.asarray(entry.node.value / np.float32(self.divided[node])), f"{node.name}_bound")

    def _operand(self, entry: NodeEntry, shape: tuple[int, ...]) -> Callable[[], NodeEntry] | None:
        """How the operand of an element-wise op is read with channels side by side; None if it cannot be."""
        own, array = any_shape(entry), entry.node.value
        if own is None:
            return None
        if array is not None and array.size == 1:
            return lambda: self.rewriter.value(entry)
        if array is not None:
            aligned = array.reshape((1,) * (4 - len(own)) + own)
            return lambda: self.sides.new_constant(np.ascontiguousarray(aligned.transpose(0, 2, 3, 1)), f"{entry.name}_beside")
        if own == shape or (len(own) == 4 and own == (1, shape[1], 1, 1)):
            return lambda: self.sides.need_beside(entry)
        return None

    # -- pools and joins -----------------------------------------------------------------------------------

    def _largest(self, node: Node) -> bool | None:
        """MaxPool: of the integers, where they are at hand."""
        window, source = make_window(node, any_shape), node.inputs[0]
        if source not in self.sides.beside or window is None or not _reaches_inside(window):
            return None
        if window.dilations != (1, 1) and not window.is_inside:
            return None
        integers = self._integers(source)
        read = self.sides.beside[source].entry if integers is None else integers[0]
        quantized = node.evolve(domain=DOMAIN, inputs=(read,), attrs=frozen_attrs(window_attributes(window)))
        self._after(node, quantized, None if integers is None else integers[1])
        return True

    def _mean(self, node: Node) -> bool | None:
        """A mean of the integers, as a number."""
        given, shape = self._given(node.inputs[0]), any_shape(node.inputs[0]) or ()
        window: Window | None
        if node.op == "GlobalAveragePool" and len(shape) == 4:
            sizes = shape[2:]
            window = Window(sizes, (1, 1), sizes, (1, 1), (1, 1), (0, 0))
        else:
            window = make_window(node, any_shape)
        if given is None or given[0] not in self.sides.beside or window is None or not _reaches_inside(window):
            return None
        if window.dilations != (1, 1) or (node.attrs.get("count_include_pad", 0) and not window.is_inside):
            return None
        source, step = given
        read = self.sides.unsigned(source, True)
        scale = self.sides.new_constant(np.asarray(step.scale), f"{node.name}_scale")
        more = {**window_attributes(window), "zero": step.unsigned_point}
        self.sides.keep(node, node.evolve(op="Mean", domain=DOMAIN, inputs=(read, scale), attrs=frozen_attrs(more)), True)
        return True

    def _join(self, node: Node) -> bool | None:
        """A Concat of channels: of the integers, where all stand for numbers alike or are quantized alike afterwards."""
        shape = any_shape(node[0]) or ()
        if len(shape) != 4 or node.attrs.get("axis") not in (1, -3) or not any(e in self.sides.beside for e in node.reads):
            return None
        reader = only_reader(node[0], self.readers)
        wanted = step_of(reader) if reader is not None and reader.op == "QuantizeLinear" else None
        integers_of = [self._integers(entry) for entry in node.reads]
        steps = [None if integers is None else integers[1] for integers in integers_of]
        if wanted is not None and wanted.is_plain:
            inputs = [self._bytes(node, i, entry, wanted) for i, entry in enumerate(node.reads)]
        elif steps[0] is not None and all(steps[0].is_like(step) for step in steps):
            inputs, wanted = [integers[0] for integers in integers_of if integers is not None], steps[0]
        else:
            inputs, wanted = [self.sides.need_beside(entry) for entry in node.reads], None
        self._after(node, node.evolve(domain=DOMAIN, inputs=tuple(inputs), attrs=frozen_attrs({})), wanted)
        return True

    def _response(self, node: Node) -> bool | None:
        """LRN: where channels stand side by side, each place is a blocked image of one place."""
        source, shape = node.inputs[0], any_shape(node[0]) or ()
        if source not in self.sides.beside or len(shape) != 4 or shape[1] % self.lanes:
            return None
        batch, channels, *sizes = shape
        places = batch * int(np.prod(sizes))
        blocked = (places, channels // self.lanes, 1, self.lanes)
        given = self.sides.beside[source].entry, self._sizes(node, blocked)
        read = self._helper(node, "Reshape", given, blocked, {}, "float32")
        attributes = {**node.attrs, "channels": channels}
        response = self._helper(node, "LRN", (read,), blocked, attributes, "float32", BLOCKED)
        back = self._sizes(node, (batch, *sizes, channels))
        self.sides.keep(node, node.evolve(op="Reshape", inputs=(response, back), attrs=frozen_attrs({})), True)
        return True

    def _sizes(self, node: Node, sizes: tuple[int, ...]) -> NodeEntry:
        return self.sides.new_constant(np.array(sizes, np.int64), f"{node.name}_shape")

    def _integers(self, entry: NodeEntry) -> tuple[NodeEntry, Step] | None:
        """What a value with channels side by side was dequantized from."""
        value = self.sides.beside.get(entry)
        step = None if value is None else self.sides.steps.get(value.entry.node)
        if value is None or step is None or step.axis is not None or value.entry.node.op != "DequantizeLinear":
            return None
        integers = value.entry.node.inputs[0]
        return None if integers is None or not step.is_plain else (integers, step)

    def _bytes(self, node: Node, i: int, entry: NodeEntry, step: Step) -> NodeEntry:
        """An operand of a join, quantized as its result will be."""
        integers = self._integers(entry)
        if integers is not None and step.is_like(integers[1]):
            return integers[0]
        return self._rounded(node, self.sides.need_beside(entry), "QuantizeLinear", step, f"{node.name}_{i}")

    def _after(self, node: Node, quantized: Node, step: Step | None) -> None:
        """An op that moves integers, and what they stand for."""
        if step is None:
            self.sides.keep(node, quantized, True)
            return
        moved = self.sides.named(quantized, f"{node.name}_integers", node, True, step.point.dtype.name)
        dequantized = node.evolve(op="DequantizeLinear", domain=DOMAIN, inputs=(moved[0], *self._operands(node, step)),
                                  attrs=frozen_attrs({}))
        self.sides.steps[self.sides.keep(node, dequantized, True)] = step

    def _rounded(self, node: Node, read: NodeEntry, op: str, step: Step, name: str) -> NodeEntry:
        """A value quantized, on behalf of a node, with one scale."""
        metadata = {ORIGIN: "\n".join(origins_of(node))}
        value_type = TensorType(step.point.dtype.name, any_shape(read))
        name = self.sides.name(name)
        new = Node(name, op, (read, *self._operands(node, step)), output_names=(name,), output_types=(value_type,), domain=DOMAIN,
                   metadata=metadata)
        return self.rewriter.keep(new)[0]

    def _operands(self, node: Node, step: Step) -> list[NodeEntry]:
        return [self._operand_constant(node, np.asarray(array), 0) for array in (step.scale, step.point)]

    # -- products ------------------------------------------------------------------------------------------

    def _convolution(self, node: Node) -> bool | None:
        given = self._given(node.inputs[0])
        weight = weight_of(node.inputs[1], 0)
        window = make_window(node, any_shape)
        if given is None or weight is None or window is None:
            return None
        (source, step), (array, scales) = given, weight
        shape, channels, groups = any_shape(node[0]) or (), (any_shape(source) or ())[1], int(node.attrs.get("group", 1))
        alone = groups == channels == shape[1] and groups > 1
        if groups > 1 and (channels // groups) % WORD and not alone:
            return None
        plain = channels <= WORD and source not in self.sides.beside and not alone
        read = self.sides.unsigned(source, not plain)
        more = {"plain": int(plain), "channels": channels, "outs": shape[1], "group": groups, "batch": shape[0]}
        geometry = {**window_attributes(window), **more}
        return self._product(node, step, read, array, scales, geometry, True, "Depthwise" if alone else "Product")

    def _matrices(self, node: Node) -> bool | None:
        given, shape = self._given(node.inputs[0]), any_shape(node[0]) or ()
        turned = bool(node.attrs.get("transB", 0))
        weight = weight_of(node.inputs[1], 0 if turned else 1)
        factors = {float(node.attrs.get(name, 1.0)) for name in ("alpha", "beta")}
        if given is None or weight is None or factors != {1.0} or node.attrs.get("transA", 0) or not shape:
            return None
        (source, step), (array, scales) = given, weight
        if array.ndim != 2:
            return None
        matrix = array if turned else array.T
        outs, depth = matrix.shape
        rows = int(np.prod(shape[:-1], dtype=int))
        self.sides.need_plain(source)
        read = self.sides.unsigned(source, False)
        return self._product(node, step, read, matrix.reshape(outs, depth, 1, 1), scales, _geometry(rows, outs, depth), False)

    def _whole(self, node: Node) -> bool | None:
        """MatMulInteger: the sums themselves. A zero point that is known only later is taken from them afterwards."""
        source, shape = node.inputs[0], any_shape(node[0]) or ()
        points = [None if entry is None else entry for entry in (*node.inputs[2:], None, None)[:2]]
        weight = whole_weight(node.inputs[1], points[1])
        if source is None or weight is None or not shape or source.node.value is not None:
            return None
        if points[0] is not None and any(size != 1 for size in any_shape(points[0]) or ()):
            return None
        self.sides.need_plain(source)
        read, name = self.sides.unsigned(source, False), node.name
        outs, columns = weight.shape[1], weight.astype(np.int64).sum(0)
        known = 0 if points[0] is None else None if points[0].node.value is None else int(points[0].node.value.item())
        moved = 128 if isinstance(source.type, TensorType) and source.type.dtype == "int8" else 0
        beginning = -((known or 0) + moved) * columns
        new = self.sides.new_constant
        matrix = np.ascontiguousarray(weight.T.reshape(outs, -1, 1, 1))
        inputs = (read, new(matrix, f"{name}_weight"), new(beginning.astype(np.int32), f"{name}_beginning"))
        geometry = {**_geometry(int(np.prod(shape[:-1], dtype=int)), *matrix.shape[:2]), "zero": 0}
        product = node.evolve(op="Product", domain=DOMAIN, inputs=inputs, attrs=frozen_attrs(geometry))
        if known is not None:
            self.sides.keep(node, product, False)
            return True
        assert points[0] is not None
        self.sides.need_plain(points[0])
        first = self.sides.named(product, f"{name}_product", node, False)
        point = self._helper(node, "Cast", (self.rewriter.value(points[0]),), any_shape(points[0]) or (), {"to": INT32})
        if any_shape(points[0]):
            point = self._helper(node, "Reshape", (point, new(np.zeros(0, np.int64), f"{name}_shape")), (), {})
        sums = self._helper(node, "Mul", (point, new(columns.astype(np.int32), f"{name}_columns")), (outs,), {})
        self.sides.keep(node, node.evolve(op="Sub", inputs=(first[0], sums), attrs=frozen_attrs({})), False)
        return True

    def _helper(
        self,
        node: Node,
        op: str,
        inputs: tuple[NodeEntry, ...],
        shape: tuple[int, ...],
        attributes: dict[str, Any],
        dtype: str = "int32",
        domain: str = "",
    ) -> NodeEntry:
        """A node on behalf of another."""
        helper = node.evolve(op=op, inputs=inputs, attrs=frozen_attrs(attributes), domain=domain)
        name = self.sides.name(f"{node.name}_{op.lower()}")
        metadata = {ORIGIN: "\n".join(origins_of(node))}
        types = (TensorType(dtype, shape),)
        return self.rewriter.keep(helper.evolve(name=name, output_names=(name,), output_types=types, metadata=metadata))[0]

    def _given(self, entry: NodeEntry | None) -> tuple[NodeEntry, Step] | None:
        """The bytes that a product reads, and what they stand for, if they are all dequantized alike."""
        step = None if entry is None else step_of(entry.node)
        if entry is None or step is None or entry.node.op != "DequantizeLinear" or step.axis is not None:
            return None
        source = entry.node.inputs[0]
        assert source is not None
        is_byte = isinstance(source.type, TensorType) and source.type.dtype in ("uint8", "int8")
        return (source, step) if is_byte and source.node.value is None else None

    def _product(
        self,
        node: Node,
        step: Step,
        read: NodeEntry,
        weight: Array,
        scales: Array,
        geometry: dict[str, Any],
        is_beside: bool,
        op: str = "Product",
    ) -> bool:
        """The product of the integers; its bias is added as integers if it is given so, else as numbers."""
        name, point = node.name, step.unsigned_point
        factor = (step.scale * scales).astype(np.float32)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        whole = _whole_bias(bias, factor)
        beginning = -point * weight.astype(np.int64).sum((1, 2, 3))
        beginning = beginning if whole is None else beginning + whole
        added = bias if whole is None else None
        if added is None:
            factor = self._divide(node, factor)
        new = self.sides.new_constant
        inputs = (read, new(np.ascontiguousarray(weight), f"{name}_weight"), new(beginning.astype(np.int32), f"{name}_beginning"),
                  new(factor.reshape(-1) if factor.size > 1 else factor.reshape(()), f"{name}_scale"))
        quantized = node.evolve(op=op, domain=DOMAIN, inputs=inputs, attrs=frozen_attrs({**geometry, "zero": point}))
        if added is None:
            self.sides.keep(node, quantized, is_beside)
            return True
        self.sides.need_plain(added)
        first = self.sides.named(quantized, f"{name}_product", node, is_beside)
        number = self.sides.flat(self.rewriter.value(added), f"{name}_bias")
        self.sides.keep(node, node.evolve(op="Add", inputs=(first[0], number), attrs=frozen_attrs({})), is_beside)
        return True

    def _divide(self, node: Node, factor: Array) -> Array:
        """The factor over the scale that the result is quantized with: nothing in between minds."""
        path, reader = [], only_reader(node[0], self.readers)
        while reader is not None and _is_homogeneous(reader):
            path.append(reader)
            reader = only_reader(reader[0], self.readers)
        step = None if reader is None or reader.op != "QuantizeLinear" else step_of(reader)
        if reader is None or step is None or not step.is_plain:
            return factor
        self.divided.update(dict.fromkeys((*path, reader), float(step.scale)))
        return (factor / step.scale).astype(np.float32)


def _geometry(rows: int, outs: int, depth: int) -> dict[str, Any]:
    """The attributes of a product of matrices."""
    window = attrs.evolve(PLACE, sizes=(rows, 1), out=(rows, 1))
    return {**window_attributes(window), "plain": 0, "channels": depth, "outs": outs, "group": 1, "batch": 1}


def _reaches_inside(window: Window) -> bool:
    """Does every window see a place of the image?"""
    last = [(o - 1) * s - b for o, s, b in zip(window.out, window.strides, window.before)]
    return all(k - b > 0 for k, b in zip(window.span, window.before)) and all(at < n for at, n in zip(last, window.sizes))


def _is_homogeneous(node: Node) -> bool:
    """Does a number divided by a scale come out divided by it?"""
    if node.domain or node.op not in ("Relu", "LeakyRelu", "Clip"):
        return False
    return node.op != "Clip" or (len(node.inputs) > 1 and all(entry.node.value is not None for entry in node.reads[1:]))


def _whole_bias(bias: NodeEntry | None, factor: Array) -> Array | None:
    """The bias in units of the factor, if the model gives it so; zeros if there is none."""
    if bias is None:
        return np.zeros(1, np.int64)
    if not is_weight(bias):
        return None
    arrays = [None if entry is None else entry.node.value for entry in bias.node.inputs]
    array, scale, point = (*arrays, None)[:3]
    if array is None or scale is None or array.dtype != np.int32 or (point is not None and point.any()):
        return None
    alike = np.allclose(np.broadcast_to(scale, array.shape), np.broadcast_to(factor, array.shape), rtol=1e-5, atol=0.0)
    return array.astype(np.int64) if alike else None


_OPS: dict[str, Callable[[_Quantizing, Node], bool | None]] = {
    "Conv": _Quantizing._convolution,
    "MaxPool": _Quantizing._largest,
    "AveragePool": _Quantizing._mean,
    "GlobalAveragePool": _Quantizing._mean,
    "Concat": _Quantizing._join,
    "LRN": _Quantizing._response,
    "Gemm": _Quantizing._matrices,
    "MatMul": _Quantizing._matrices,
    "MatMulInteger": _Quantizing._whole,
}
