"""Convolutions without the taps that only meet padding, as those of a filter that is dilated beyond its image, and pools of the
whole image as reductions, which several threads can share.

A filter of 3 x 3 taps with dilation 36 sees one pixel at a time of a 14 x 14 image."""

from __future__ import annotations

import numpy as np

from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.kernels.shared.window import is_convolution, placement
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.node import Node, frozen_attrs
from partita.graph.numerics.windows import SAME
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.constants import Namer
from partita.passes.registry import REQUESTS, register_pass


@register_pass("DropOuterTaps", keeps=REQUESTS, family="tvm")
def drop_outer_taps(graph: Graph) -> Graph:
    """Convolutions without the border taps of their filters that only ever meet padding. Linear."""
    namer = Namer(graph)

    def visit(node: Node, rewriter: Rewriter) -> None:
        smaller = _smaller(node) if is_convolution(node) else None
        if smaller is None:
            rewriter.keep(node)
            return
        weights, attributes = smaller
        filters = rewriter.keep(constant(weights, namer(f"{node.name}_weights")))[0]
        rebuilt = rewriter.rebuilt(node)
        inputs = (rebuilt.inputs[0], filters, *rebuilt.inputs[2:])
        rewriter.keep(node, rebuilt.evolve(inputs=inputs, attrs=frozen_attrs(attributes)))

    return rewrite(graph, visit)


def _smaller(node: Node) -> tuple[np.ndarray, dict[str, object]] | None:
    """The weights of the taps that meet the image, and the attributes for them; None if all taps do."""
    image, result = real_shape(node.inputs[0]), real_shape(node[0])
    weights = None if node.inputs[1] is None else node.inputs[1].node.value
    if image is None or result is None or weights is None or node.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    if any(isinstance(size, Extent) for size in (*image[2:], *result[2:])):
        return None
    count = len(image) - 2
    strides, dilations, before, after = placement(node, image[2:], weights.shape[2:])
    pads, kept = [*before, *after], []
    for d, (size, out, taps) in enumerate(zip(image[2:], result[2:], weights.shape[2:], strict=True)):
        meets = [k for k in range(taps) if _meets(k * dilations[d] - pads[d], strides[d], size, out)]
        if not meets:
            return None
        kept.append(slice(meets[0], meets[-1] + 1))
        pads[d] -= meets[0] * dilations[d]
        pads[count + d] -= (taps - 1 - meets[-1]) * dilations[d]
    smaller = weights[(slice(None), slice(None), *kept)]
    if smaller.shape == weights.shape or min(pads) < 0 or not np.isfinite(weights).all():
        return None
    attributes = {**node.attrs, "pads": pads, "kernel_shape": list(smaller.shape[2:])}
    return np.ascontiguousarray(smaller), attributes


def _meets(first: int, stride: int, size: int, out: int) -> bool:
    """True if a tap that is at `first` for the first result is inside the image for some result."""
    nearest = first if first >= 0 else first + min(-(first // stride), out - 1) * stride
    return out > 0 and 0 <= nearest < size


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
