"""Convolutions whose windows stand side by side, as products: a signal or a volume is cut into patches, and each is multiplied by
the filters. So do video transformers begin. Images have kernels of their own."""

from __future__ import annotations

import math

import numpy as np

from partita.accelerators.tvm.bodies.body import shape_of
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import TensorType

REFUSAL = "this convolution is a product of patches"

FEW = 16
"""Signals with fewer windows than this have no kernel as they stand."""


def is_of_patches(node: Node) -> bool:
    """True for such a convolution of floats, of static sizes, by a constant that reads all channels."""
    if node.op != "Conv" or node.domain or None in node.inputs[:2]:
        return False
    weight, given, result = node.reads[1].node.value, node.reads[0].type, node.output_types[0]
    if weight is None or not isinstance(given, TensorType) or not isinstance(result, TensorType):
        return False
    if not given.is_static or not result.is_static or given.dtype != "float32" or weight.ndim not in (3, 5):
        return False
    taps, attributes = list(weight.shape[2:]), node.attrs
    ones = [1] * len(taps)
    is_side_by_side = list(attributes.get("strides") or ones) == taps and list(attributes.get("dilations") or ones) == ones
    is_plain = not any(attributes.get("pads") or ()) and attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    windows = math.prod(shape_of(node[0])[2:])
    is_few = windows < FEW or len(taps) == 3
    return is_side_by_side and is_plain and attributes.get("group", 1) == 1 and math.prod(taps) > 1 and windows > 0 and is_few


def patch_parts(node: Node, graph: Graph) -> Graph:
    """The body of the convolution, its inputs named x0, x1, … after the node's."""
    version, weight = graph.opsets.get("", 1), node.reads[1].node.value
    assert weight is not None
    inputs = [None if entry is None else variable(f"x{i}", type=entry.type) for i, entry in enumerate(node.inputs)]
    outs, channels, *taps = weight.shape
    batch, _, *windows = shape_of(node[0])
    x, filters, *bias = inputs
    assert x is not None and filters is not None
    rank = len(taps)

    def whole(values: list[int]) -> Node:
        return constant(np.asarray(values, np.int64))

    cut = op("Slice", x, whole([0] * rank), whole([t * n for t, n in zip(taps, windows, strict=True)]),
             whole(list(range(2, rank + 2))), opset=version)
    pairs = [size for pair in zip(windows, taps, strict=True) for size in pair]
    apart = op("Reshape", cut, whole([batch, channels, *pairs]), opset=version)
    order = [0, *range(2, 2 * rank + 2, 2), 1, *range(3, 2 * rank + 3, 2)]
    depth = channels * math.prod(taps)
    rows = op("Reshape", op("Transpose", apart, perm=order, opset=version), whole([-1, depth]), opset=version)
    across = op("Transpose", op("Reshape", filters, whole([outs, depth]), opset=version), perm=[1, 0], opset=version)
    total = op("MatMul", rows, across, opset=version)
    if bias and bias[0] is not None:
        total = op("Add", total, bias[0], opset=version)
    back = op("Reshape", total, whole([batch, math.prod(windows), outs]), opset=version)
    turned = op("Transpose", back, perm=[0, 2, 1], opset=version)
    final = op("Reshape", turned, whole([batch, outs, *windows]), opset=version)
    return Graph([final], [node for node in inputs if node is not None], "parts", graph.opsets)
