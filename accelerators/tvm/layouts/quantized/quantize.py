"""Products of quantized values as products of integers, in NHWC all the way between them.

In a model's DequantizeLinear, Conv, QuantizeLinear the Conv becomes a Product of the integers with the same result, and
DequantizeLinear is left with other readers, or none. Element-wise ops, pools and joins stay in NHWC; any other op reads a plain
value, made once at its first use. Ops without a rule stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.elementwise import ELEMENTWISE
from partita.accelerators.tvm.layouts.quantized.conv_integer import whole_convolution
from partita.accelerators.tvm.layouts.quantized.notes import FOUND
from partita.accelerators.tvm.layouts.quantized.ops import (
    elementwise,
    join_channels,
    largest,
    looked_up,
    mean,
    move,
    normalized,
    pad,
    resized,
    response,
    rounding,
    transposed,
)
from partita.accelerators.tvm.layouts.quantized.products import convolution, matrices, whole_product
from partita.accelerators.tvm.layouts.quantized.scales import scaling_of
from partita.accelerators.tvm.layouts.quantized.walk import MOVES, QuantizingWalk, Rule
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.passes.registry import REQUESTS, register_pass

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(MOVES, move),
    "Pad": pad,
    "Conv": convolution,
    "ConvTranspose": transposed,
    **dict.fromkeys(ops("resizing"), resized),
    "BatchNormalization": normalized,
    "MaxPool": largest,
    "AveragePool": mean,
    "GlobalAveragePool": mean,
    "Concat": join_channels,
    "LRN": response,
    **dict.fromkeys(ops("matmul"), matrices),
    "MatMulInteger": whole_product,
    "ConvInteger": whole_convolution,
}
"""The rules for single ops, apart from those for quantizing and for element-wise ops."""

ON_GPUS = frozenset(RULES) - {"LRN"}
"""The ops whose rules apply on GPUs, which have kernels for the results."""


@register_pass("Quantize", keeps=(FOUND, *REQUESTS), family="tvm")
def quantize(graph: Graph, machine: Machine) -> Graph:
    """Convolutions and matrix products of quantized values computed in integers, channels last in between. Linear."""
    if all(node.op not in ops("quantizing", "integer_product") for node in graph.nodes):
        return graph
    with collector_paused():
        return _walked(QuantizingWalk(graph, machine))


def _walked(walk: QuantizingWalk) -> Graph:
    wanted = set(walk.graph.outputs)
    for node in walk.graph.nodes:
        rule = _rule(node, walk.is_for_gpu) if node.is_op else None
        if rule is None or rule(walk, node) is None:
            for entry in (*node.inputs, *node.captures):
                if entry is not None:
                    walk.sides.need_plain(entry)
            walk.rewriter.keep(node)
        elif node[0] in wanted:
            walk.sides.need_plain(node[0])
    return walk.rewriter.finish(nodes=())


def _rule(node: Node, is_for_gpu: bool) -> Rule | None:
    """The rule for an op of one result that is not empty, or for a Split; None if there is none."""
    if node.domain == DOMAIN and node.op == "Table":
        return looked_up
    is_one = len([name for name in node.output_names if name]) == 1
    if node.domain or not (is_one or node.op == "Split") or any(0 in (any_shape(entry) or (0,)) for entry in node.outputs):
        return None
    if scaling_of(node) is not None:
        return rounding
    if node.op in ELEMENTWISE:
        return elementwise
    return None if is_for_gpu and node.op not in ON_GPUS else RULES.get(str(node.op))
