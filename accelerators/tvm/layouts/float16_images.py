"""Ops on half-precision images that only have kernels on blocked values."""

from __future__ import annotations

from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.layouts.transposing import find_phases
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.passes.decompose.halves import is_half
from partita.passes.decompose.resizing import has_constant_sizes, mixtures

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
