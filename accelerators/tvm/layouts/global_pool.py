"""Pools whose one window is the whole image become reductions, which several threads can share."""

from __future__ import annotations

from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.graph.graph import Graph
from partita.graph.node import Node, frozen_attrs
from partita.graph.numerics.windows import SAME
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.registry import REQUESTS, register_pass

GLOBAL = {"AveragePool": "GlobalAveragePool", "MaxPool": "GlobalMaxPool"}
"""The global form of each pool."""


@register_pass("WidenPools", keeps=REQUESTS, family="tvm")
def widen_windows(graph: Graph) -> Graph:
    """Pools whose one window is the whole image as global pools. Linear."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        if _sees_all(node):
            rewriter.keep(node, rewriter.rebuilt(node).evolve(op=GLOBAL[str(node.op)], attrs=frozen_attrs({})))
        else:
            rewriter.keep(node)

    return rewrite(graph, visit) if any(map(_sees_all, graph.nodes)) else graph


def _sees_all(node: Node) -> bool:
    """True for a pool of one window that has the size of the image and no padding."""
    if node.op not in GLOBAL or node.domain or len(node.output_names) != 1:
        return False
    image, result = real_shape(node.inputs[0]), real_shape(node[0])
    if image is None or result is None or len(image) < 3 or any(size != 1 for size in result[2:]):
        return False
    is_padded = any(node.attrs.get("pads") or ()) or node.attrs.get("auto_pad", "NOTSET") in SAME
    return not is_padded and tuple(node.attrs.get("kernel_shape") or ()) == tuple(image[2:])
