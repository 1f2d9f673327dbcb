"""Weights of 8 or 4 bits stay packed: products by them, and tables that rows are gathered from.

A DequantizeLinear of a constant with a MatMul, Gemm or Gather after it becomes an op on the packed matrix (`bodies/packed.py`).
A table that is also a product's weight, as the embeddings of a language model, is packed once for both."""

from __future__ import annotations

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.blocked import origin_metadata
from partita.accelerators.tvm.bodies.packed import DOMAIN, PRODUCT, ROWS
from partita.accelerators.tvm.bodies.quantized import is_weight
from partita.accelerators.tvm.kernels.contraction.packing import Packing
from partita.accelerators.tvm.kernels.shared.element_access import REALS, any_shape, real_shape
from partita.accelerators.tvm.layouts.quantized.notes import FOUND
from partita.accelerators.tvm.layouts.quantized.scales import LEAST
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.build import constant
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import ELEMENT_TYPES, Array
from partita.passes.constants import Namer
from partita.passes.registry import REQUESTS, register_pass

PACKED_TYPES = frozenset(("int8", "uint8", "int4", "uint4"))
"""Element types of weights that stay packed."""


@attrs.frozen(slots=True, eq=False)
class StoredMatrix:
    """A quantized constant matrix [depth, columns] as the model stores it."""

    numbers: Array
    """The integers, in numpy's smallest type that holds them."""
    scales: Array
    """The scales [blocks of the depth, columns], in the model's element type."""
    points: Array | None
    """The zero points, a byte each; None if they are all zero."""
    bits: int
    signed: bool
    block: int
    """Number of elements along the depth that share a scale."""


@register_pass("PackWeights", keeps=(FOUND, *REQUESTS), family="tvm")
def pack_weights(graph: Graph, machine: Machine) -> Graph:
    """Matrix products and gathers that read weights of 8 or 4 bits as they are stored. Linear."""
    if not any(is_weight(node[0]) for node in graph.nodes if node.is_op):
        return graph
    packing, rewriter = _WeightPacker(graph, machine), Rewriter(graph)
    with collector_paused():
        for node in graph.nodes:
            packing.visit(node, rewriter)
        return rewriter.finish(nodes=())


class _WeightPacker:
    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.namer = Namer(graph)
        self.lanes = machine.lanes
        self.operands: dict[tuple[Node, bool], tuple[tuple[NodeEntry, ...], dict[str, int]] | None] = {}
        """The operands (packed matrix, scales, zero points) and attributes of the ops, by weight and whether it is transposed."""

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        """Replaces a product or a Gather of a weight by an op on the packed weight; keeps any other op."""
        change = RULES.get(str(node.op)) if not node.domain else None
        if change is None or not change(self, node, rewriter):
            rewriter.keep(node)

    def _product(self, node: Node, rewriter: Rewriter) -> bool:
        left, right, bias = (*node.inputs, None)[:3]
        shape, result = real_shape(left), real_shape(node[0])
        weight, turned = _before_turn(right)
        packed = None
        if left is not None and shape and result and 0 not in (*shape, *result) and not node.attrs.get("transA", 0):
            packed = self._packed(weight, turned != bool(node.attrs.get("transB", 0)), rewriter)
        if packed is None or left is None or left.node.value is not None:
            return False
        operands, attributes = packed
        alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
        steps: list[tuple[str, NodeEntry]] = []
        if alpha != 1.0:
            steps.append(("Mul", rewriter.keep(constant(np.float32(alpha), self.namer(f"{node.name}_alpha")))[0]))
        if bias is not None and beta != 0.0:
            steps.append(("Add", self._scaled_bias(node, rewriter.value(bias), beta, rewriter)))
        inputs = (rewriter.value(left), *operands)
        product = node.evolve(op=PRODUCT, domain=DOMAIN, inputs=inputs, attrs=frozen_attrs(attributes))
        for op, operand in steps:
            named = self._helper(node, product, f"{node.name}_product")
            product = node.evolve(op=op, inputs=(rewriter.keep(named)[0], operand), attrs=frozen_attrs({}))
        rewriter.keep(node, product)
        return True

    def _scaled_bias(self, node: Node, bias: NodeEntry, beta: float, rewriter: Rewriter) -> NodeEntry:
        if beta == 1.0:
            return bias
        factor = rewriter.keep(constant(np.float32(beta), self.namer(f"{node.name}_beta")))[0]
        scaled = node.evolve(op="Mul", inputs=(bias, factor), attrs=frozen_attrs({}), output_types=(bias.type,))
        return rewriter.keep(self._helper(node, scaled, f"{node.name}_bias"))[0]

    def _helper(self, node: Node, helper: Node, name: str) -> Node:
        """The node, renamed and traced to the original node."""
        name = self.namer(name)
        return helper.evolve(name=name, output_names=(name,), metadata=origin_metadata(node))

    def _rows(self, node: Node, rewriter: Rewriter) -> bool:
        table, indices = node.inputs[0], node.inputs[1]
        if int(node.attrs.get("axis", 0)) or indices is None or not real_shape(node[0]) or 0 in (real_shape(node[0]) or ()):
            return False
        packed = self._packed(table, True, rewriter)
        if packed is None:
            return False
        operands, attributes = packed
        inputs = (rewriter.value(indices), *operands)
        rewriter.keep(node, node.evolve(op=ROWS, domain=DOMAIN, inputs=inputs, attrs=frozen_attrs(attributes)))
        return True

    def _packed(
        self, entry: NodeEntry | None, turned: bool, rewriter: Rewriter
    ) -> tuple[tuple[NodeEntry, ...], dict[str, int]] | None:
        """The packed weight's operands and attributes; None if it cannot stay packed."""
        if entry is None or not is_weight(entry):
            return None
        key = entry.node, turned
        if key not in self.operands:
            stored = stored_matrix(entry.node, turned)
            self.operands[key] = None if stored is None else self._constants(entry.node, stored, rewriter)
        return self.operands[key]

    def _constants(
        self, node: Node, stored: StoredMatrix, rewriter: Rewriter
    ) -> tuple[tuple[NodeEntry, ...], dict[str, int]]:
        depth, columns = stored.numbers.shape
        packing = Packing(stored.bits, stored.signed, depth, columns, self.lanes)
        arrays = {"packed": packing.pack(stored.numbers), "scales": packing.by_block(stored.scales)}
        if stored.points is not None:
            arrays["points"] = packing.by_block(stored.points)
        entries = [rewriter.keep(constant(array, self.namer(f"{node.name}_{what}")))[0] for what, array in arrays.items()]
        return tuple(entries), {**packing.attributes, "block": stored.block}


RULES = {**dict.fromkeys(ops("matmul"), _WeightPacker._product), "Gather": _WeightPacker._rows}


def stored_matrix(node: Node, turned: bool) -> StoredMatrix | None:
    """The matrix that a DequantizeLinear of a constant represents; `turned` if the constant is [columns, depth].

    None unless its scales are per tensor, per column, or per column and block of the depth."""
    array, scale, point = (None if entry is None else entry.node.value for entry in (*node.inputs, None)[:3])
    if array is None or scale is None or array.ndim != 2 or not array.size or array.dtype.name not in PACKED_TYPES:
        return None
    if scale.dtype.name not in REALS or (point is not None and point.shape != scale.shape):
        return None
    sizes = np.abs(scale.astype(np.float32))
    if not ((sizes >= LEAST) & (sizes <= 1 / LEAST)).all():
        return None
    bits = ELEMENT_TYPES[array.dtype.name].bits
    numbers = array.astype(np.int8) if bits == 4 else array
    depth, columns = numbers.shape[::-1] if turned else numbers.shape
    axis, block = int(node.attrs.get("axis", 1)) % 2, int(node.attrs.get("block_size", 0))
    along_depth = axis == (1 if turned else 0)
    if scale.size == 1 and not block:
        shape = (1, 1)
    elif scale.ndim == 1 and not along_depth and scale.size == columns and not block:
        shape = (1, columns)
    elif block and along_depth and scale.ndim == 2 and sorted(scale.shape) == sorted((-(-depth // block), columns)):
        shape = (-(-depth // block), columns)
    else:
        return None

    def arranged(given: Array) -> Array:
        rows = given.T if given.ndim == 2 and turned else given
        return np.ascontiguousarray(np.broadcast_to(rows.reshape(shape), (shape[0], columns)))

    if scale.ndim == 2 and (scale.T if turned else scale).shape != shape:
        return None
    points = np.zeros((shape[0], columns), np.int16) if point is None else arranged(point.astype(np.int16))
    size = block or depth
    return _stored(numbers.T if turned else numbers, arranged(scale), points, bits, size)


def _stored(numbers: Array, scales: Array, points: Array, bits: int, block: int) -> StoredMatrix:
    """The integers with their zero points subtracted if they still fit, so that none is subtracted at run time."""
    whole = np.repeat(points, block, axis=0)[: len(numbers)] if len(points) > 1 else points
    centred = numbers - whole if points.any() else numbers
    half = 1 << (bits - 1)
    if centred.min() >= -half and centred.max() < half:
        return StoredMatrix(centred, scales, None, bits, True, block)
    signed = bool(min(numbers.min(), points.min()) < 0)
    narrow = points.astype(np.int8 if signed else np.uint8) if points.any() else None
    return StoredMatrix(numbers, scales, narrow, bits, signed, block)


def _before_turn(entry: NodeEntry | None) -> tuple[NodeEntry | None, bool]:
    """The weight that an entry is or transposes, and whether it transposes it."""
    node = None if entry is None else entry.node
    if node is None or node.op != "Transpose" or node.domain or len(any_shape(entry) or ()) != 2:
        return entry, False
    return node.inputs[0], tuple(node.attrs.get("perm", (1, 0))) == (1, 0)
