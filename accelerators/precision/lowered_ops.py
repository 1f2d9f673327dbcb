"""Lowers the precision of some products of a graph, in standard ONNX, so that every engine reads it.

A product in int8 is between QuantizeLinear and DequantizeLinear, with a scale for each channel of its weights; one in bf16 or
f16 between two casts; one with integer weights alone reads them through a DequantizeLinear. Ops that only move elements,
and pools, read the same integers as their consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from partita.accelerators.precision.calibration import Range
from partita.graph.build import constant, op
from partita.graph.errors import PassError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import BY_SHORT_NAME, ELEMENT_TYPES, Array, TensorType, numpy_dtype
from partita.passes import apply_pass
from partita.passes.constants import Namer

KEPT = "float32"
"""The precision of ops that are not lowered."""

CASTS = ("bf16", "f16")
"""The precisions whose products are casts away."""

BLOCKS = (32, 16, 8)
"""Numbers of elements of a column of 4-bit weights that share a scale: the first that divides the depth, or else the whole
column. OpenVINO supports only blocks that divide it."""

BYTES = {"int8": 1.0, "int8-weights": 1.0, "int4-weights": 0.5, "bf16": 2.0, "f16": 2.0}
"""The precisions of products, and the bytes per weight in each."""

PRECISIONS = tuple(BYTES)

HALF_BYTES = 21
"""The first opset with 4-bit integers."""

CHANNEL_SCALES = 13
"""The first opset with a scale for each channel."""

AGREEING = ops("propagated") | frozenset("Add Sum Concat Relu".split())
"""Ops that read values quantized for others, rather than require their own."""


def lowerable(graph: Graph) -> list[Node]:
    """The convolutions and matrix products with constant float32 weights: those that may be lowered. Linear."""
    return [node for node in graph.nodes if weight_of_product(node) is not None]


def weight_of_product(node: Node) -> Array | None:
    """The constant weights of a product that may be lowered; None for any other node."""
    if node.domain or node.op not in ("Conv", "MatMul", "Gemm") or node.attrs.get("transA", 0) or len(node.inputs) < 2:
        return None
    given, weight = node.inputs[0], node.inputs[1]
    array = None if weight is None else weight.node.value
    if given is None or given.node.value is not None or array is None or array.dtype != np.float32 or not array.size:
        return None
    static = isinstance(node[0].type, TensorType) and node[0].type.dtype == "float32"
    scaled = float(node.attrs.get("alpha", 1.0)) == float(node.attrs.get("beta", 1.0)) == 1.0
    fits = array.ndim == 2 if node.op != "Conv" else array.ndim > 2
    return array if static and scaled and fits and np.isfinite(array).all() else None


def with_channel_scales(graph: Graph) -> Graph:
    """The graph at an opset with a scale for each channel; unchanged if ONNX cannot convert it."""
    if graph.opset >= CHANNEL_SCALES:
        return graph
    try:
        return apply_pass(graph, "ConvertOpset", opset=CHANNEL_SCALES)
    except PassError:
        return graph


def why_not(node: Node, precision: str, version: int) -> str | None:
    """The reason why an opset does not support the op in a precision, or why it would gain nothing; None if it may be lowered."""
    reason = why_not_in_onnx(node, precision, version)
    if reason is None and precision.endswith("-weights") and node.op == "Conv":
        return "a convolution whose weights alone are integers wins nothing: they become numbers before it runs"
    return reason


def why_not_in_onnx(node: Node, precision: str, version: int) -> str | None:
    """The reason why an opset does not support the op in a precision; None if it does."""
    if precision in ("int8", "int8-weights") and version < CHANNEL_SCALES:
        return f"a scale for each channel needs opset {CHANNEL_SCALES}, and the model has {version}"
    if precision == "int4-weights" and version < HALF_BYTES:
        return f"weights of 4 bits need opset {HALF_BYTES}, and the model has {version}"
    least = 22 if node.op == "Conv" else 13
    if precision == "bf16" and version < least:
        return f"{node.op} takes bfloat16 from opset {least} on, and the model has {version}"
    return None


def channel_axis(node: Node) -> int:
    """The axis of a product's weights for its output channels."""
    return 0 if node.op == "Conv" or node.attrs.get("transB", 0) else 1


def lowered(graph: Graph, precisions: Mapping[str, str], ranges: Mapping[str, Range]) -> Graph:
    """The graph with these nodes, by name, in these precisions; `ranges` are those of values that int8 ops read. Linear."""
    for node in graph.nodes:
        reason = why_not_in_onnx(node, precisions.get(node.name, KEPT), graph.opset)
        if reason is not None:
            raise PassError(reason, where=f"node {node.name!r}", remedy="Convert the model with the pass ConvertOpset first")
    return _Lowering(graph, precisions, ranges).run()


def moved_from(entry: NodeEntry) -> list[NodeEntry]:
    """The value, and the ones that it is moved from, the original one last."""
    path = [entry]
    while path[-1].node.op in ops("propagated") and not path[-1].node.domain and len(path[-1].node.output_names) == 1:
        before = path[-1].node.inputs[0]
        if before is None or before.node.value is not None:
            break
        path.append(before)
    return path


@attrs.frozen(slots=True)
class Integers:
    """The quantization parameters of a value's bytes."""

    scale: np.float32
    point: np.uint8

    @classmethod
    def of(cls, bounds: Range) -> Integers:
        """Unsigned bytes for a range, extended to zero."""
        low, high = min(bounds[0], 0.0), max(bounds[1], 0.0)
        scale = np.float32((high - low) / 255)
        if not (np.isfinite(scale) and scale > 1e-30):
            scale = np.float32(1.0)
        return cls(scale, np.uint8(np.clip(np.rint(-low / float(scale)), 0, 255)))


def signed_bytes(array: Array, axis: int) -> tuple[Array, Array]:
    """Weights as signed bytes with zero point 0, and their scales along an axis."""
    others = tuple(d for d in range(array.ndim) if d != axis)
    scale = (np.abs(array).max(others, keepdims=True) / 127).astype(np.float32)
    scale = np.where(scale > 1e-30, scale, np.float32(1.0))
    return np.clip(np.rint(array / scale), -127, 127).astype(np.int8), scale.reshape(-1)


def block_of(depth: int) -> int:
    """The number of elements of a column of 4-bit weights that share a scale."""
    return next((block for block in BLOCKS if depth % block == 0), depth)


def half_bytes(array: Array, axis: int) -> tuple[Array, Array]:
    """Weights as 4-bit integers with zero point 0, and their scales: one for each block along the axis."""
    numbers = np.moveaxis(array, axis, 0)
    block = block_of(len(numbers))
    most = np.abs(numbers).reshape(-1, block, *numbers.shape[1:]).max(1)
    scales = np.where(most > 1e-30, most / 7, 1.0).astype(np.float32)
    integers = np.clip(np.rint(numbers / np.repeat(scales, block, axis=0)), -7, 7).astype(ml_dtypes.int4)
    stored, blocks = (np.ascontiguousarray(np.moveaxis(part, 0, axis)) for part in (integers, scales))
    return stored, blocks


def bytes_won(node: Node, precision: str) -> float:
    """The number of bytes that a precision saves on the product's weights."""
    weight = weight_of_product(node)
    assert weight is not None
    scales = 4 / block_of(weight.shape[1 - channel_axis(node)]) if precision == "int4-weights" else 0.0
    return (4 - BYTES[precision] - scales) * weight.size


class _Lowering:
    def __init__(self, graph: Graph, precisions: Mapping[str, str], ranges: Mapping[str, Range]) -> None:
        self.graph = graph
        self.precisions = precisions
        self.ranges = ranges
        self.rewriter = Rewriter(graph)
        self.namer = Namer(graph)
        self.integers = self._wanted()
        self.dequantized: dict[tuple[NodeEntry, str | None], NodeEntry] = {}
        """Values after quantization and dequantization: one for each device that reads it, so that bytes pass between devices."""
        self.cast: dict[tuple[NodeEntry, str], NodeEntry] = {}
        self.affinity: str | None = None
        """The device of the current node, or of its first reader: added ops get it."""

    def _wanted(self) -> dict[NodeEntry, Integers]:
        """The values to quantize."""
        wanted: dict[NodeEntry, Integers] = {}
        for node in self.graph.nodes:
            if self.precisions.get(node.name) == "int8" and node.inputs[0] is not None:
                path = moved_from(node.inputs[0])
                known = [self.ranges[entry.name] for entry in path if entry.name in self.ranges]
                if not known:
                    raise PassError(
                        f"nothing says between which numbers {path[-1].name!r} lies, which it reads as integers",
                        where=f"node {node.name!r}",
                        remedy="Apply the plan as choose_precision made it",
                    )
                wanted.update(dict.fromkeys(path, Integers.of(known[-1])))
        return wanted

    def run(self) -> Graph:
        rewriter, plain = self.rewriter, dict[NodeEntry, NodeEntry]()
        for node in self.graph.nodes:
            readers = [] if node.is_op else self.graph.consumers(node)
            self.affinity = next((reader.affinity for reader in readers), node.affinity)
            change = LOWERINGS.get(self.precisions.get(node.name, KEPT), _Lowering._kept)
            replacement = rewriter.keep(node, change(self, node)) if node.is_op else rewriter.keep(node)
            for entry in node.outputs:
                plain[entry] = replacement[entry.index]
                if entry in self.integers:
                    self._quantize(entry, plain[entry])
        outputs = [plain[entry] for entry in self.graph.outputs]
        return rewriter.finish(outputs=outputs, nodes=())

    def _reading(self, node: Node, slots: Callable[[int], bool]) -> list[NodeEntry | None]:
        """The node's inputs, those of some slots after quantization."""
        given = []
        for i, entry in enumerate(node.inputs):
            stands = self.dequantized.get((entry, node.affinity)) if entry is not None and slots(i) else None
            given.append(stands if stands is not None else None if entry is None else self.rewriter.value(entry))
        return given

    def _kept(self, node: Node) -> Node:
        """A node that is not lowered reads its own values, or those quantized for its consumers."""
        if not node.domain and node.op in AGREEING and not node.bodies:
            return self.rewriter.rebuilt(node).evolve(inputs=tuple(self._reading(node, lambda i: True)))
        return self.rewriter.rebuilt(node)

    def _quantize(self, entry: NodeEntry, value: NodeEntry) -> None:
        """Quantizes the value, and dequantizes it for each device that reads it."""
        step = self.integers[entry]
        arrays = {"scale": step.scale, "point": step.point}
        operands = [self._constant(entry, np.asarray(array), what) for what, array in arrays.items()]
        quantized = self._helper("QuantizeLinear", f"{entry.name}_integers", _typed(entry, "uint8"), value, *operands)
        for label in dict.fromkeys(reader.affinity for reader in self.graph.consumers(entry.node)):
            self.affinity = label
            rounded = self._helper("DequantizeLinear", f"{entry.name}_rounded", entry.type, quantized, *operands)
            self.dequantized[entry, label] = rounded

    def _int8(self, node: Node) -> Node:
        """The product of quantized values and weights; its bias is in units of the product of their scales."""
        given, weight = self._reading(node, lambda i: i == 0), weight_of_product(node)
        assert weight is not None and node.inputs[0] is not None and node.inputs[1] is not None
        axis = channel_axis(node)
        array, scales = signed_bytes(weight, axis)
        given[1] = self._stored(node.inputs[1], node, "weight", array, scales, axis)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is not None and bias.node.value is not None and bias.node.value.size == scales.size:
            factor = self.integers[node.inputs[0]].scale * scales
            units = np.rint(bias.node.value.reshape(-1).astype(np.float64) / factor)
            if bias.node.value.ndim == 1 and np.abs(units).max() < 2**31 and (factor > 1e-30).all():
                given[2] = self._stored(bias, node, "bias", units.astype(np.int32), factor, 0)
        return node.evolve(inputs=tuple(given))

    def _byte_weights(self, node: Node) -> Node:
        """The product of unchanged values by weights that are stored as bytes."""
        axis, weight = channel_axis(node), weight_of_product(node)
        assert weight is not None
        return self._with_weight(node, *signed_bytes(weight, axis), axis=axis)

    def _half_byte_weights(self, node: Node) -> Node:
        """The product of unchanged values by weights that are stored as half bytes, in blocks of the depth."""
        depth, weight = 1 - channel_axis(node), weight_of_product(node)
        assert weight is not None
        return self._with_weight(node, *half_bytes(weight, depth), axis=depth, block_size=block_of(weight.shape[depth]))

    def _with_weight(self, node: Node, array: Array, scales: Array, **attributes: int) -> Node:
        given, entry = self._reading(node, lambda i: False), node.inputs[1]
        assert entry is not None
        given[1] = self._stored(entry, node, "weight", array, scales, **attributes)
        return node.evolve(inputs=tuple(given))

    def _stored(
        self, entry: NodeEntry, node: Node, what: str, array: Array, scales: Array, axis: int, **attributes: int
    ) -> NodeEntry:
        """A constant as integers and scales."""
        stem = f"{node.name}_{what}"
        operands = [self._constant(entry, array, "integers", stem), self._constant(entry, scales, "scales", stem)]
        return self._helper("DequantizeLinear", stem, entry.type, *operands, axis=axis, **attributes)

    def _narrow(self, node: Node) -> Node:
        """The product of values and weights that are cast; its result is cast back."""
        precision = self.precisions[node.name]
        given: list[NodeEntry | None] = []
        for entry in node.inputs:
            if entry is None or not isinstance(entry.type, TensorType) or entry.type.dtype != "float32":
                given.append(None if entry is None else self.rewriter.value(entry))
            else:
                given.append(self._as(entry, precision))
        dtype = BY_SHORT_NAME[precision]
        name = self.namer(f"{node.name}_{precision}")
        product = node.evolve(
            name=name, output_names=(self.namer(f"{node[0].name}_{precision}"),), inputs=tuple(given),
            output_types=(_typed(node[0], dtype),),
        )
        narrow = self.rewriter.keep(product)[0]
        cast = op("Cast", narrow, name=node.name, output_names=node.output_names, to=ELEMENT_TYPES["float32"].number)
        return cast.evolve(output_types=node.output_types, affinity=node.affinity, metadata=node.metadata, place=node.place)

    def _as(self, entry: NodeEntry, precision: str) -> NodeEntry:
        """The value in another element type."""
        if (entry, precision) not in self.cast:
            kind, array = numpy_dtype(BY_SHORT_NAME[precision]), entry.node.value
            if array is not None:
                cast = self._constant(entry, array.astype(kind), precision)
            else:
                value, to = self.rewriter.value(entry), ELEMENT_TYPES[BY_SHORT_NAME[precision]].number
                cast = self._helper("Cast", f"{entry.name}_{precision}", _typed(entry, kind.name), value, to=to)
            self.cast[entry, precision] = cast
        return self.cast[entry, precision]

    def _constant(self, entry: NodeEntry, array: Array, what: str, stem: str = "") -> NodeEntry:
        node = constant(array, self.namer(f"{stem or entry.name}_{what}"))
        return self.rewriter.keep(node.evolve(affinity=entry.node.affinity))[0]

    def _helper(self, kind: str, name: str, value_type: Any, *inputs: NodeEntry, **attributes: Any) -> NodeEntry:
        name = self.namer(name)
        node = op(kind, *inputs, name=name, output_names=(name,), **attributes)
        return self.rewriter.keep(node.evolve(output_types=(value_type,), affinity=self.affinity))[0]


LOWERINGS = {
    KEPT: _Lowering._kept,
    "int8": _Lowering._int8,
    "int8-weights": _Lowering._byte_weights,
    "int4-weights": _Lowering._half_byte_weights,
    **dict.fromkeys(CASTS, _Lowering._narrow),
}


def _typed(entry: NodeEntry, dtype: str) -> TensorType:
    assert isinstance(entry.type, TensorType)
    return TensorType(dtype, entry.type.shape)
