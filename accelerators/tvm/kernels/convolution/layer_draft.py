"""A convolution with constant weights and its epilogue as one kernel: the part that all implementations share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.convolution.image import Image, make_image
from partita.accelerators.tvm.kernels.convolution.normed_image import NormedImage
from partita.accelerators.tvm.kernels.language import Buffer, Kernel
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, make_epilogue, plus_bias
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.graph.node import Node
from partita.graph.types import Array


class Layer(Protocol):
    """A convolution and its cut."""

    @property
    def weights(self) -> int:
        """Number of elements of the packed weights."""

    def pack(self, array: Array) -> Array:
        """The weights in the layout that the loops read."""

    def write(self, kernel: Kernel, source: Buffer, weight: Buffer, writer: Writer) -> None:
        """Writes all loops."""


def draft_layer(
    body: Body, schedule: str, cut: Callable[[Image], Layer | None], normed: NormedImage | None = None
) -> Draft | None:
    """The kernel of the body's only convolution; None for any other body, or if `cut` returns None. It reads a value, or a normed
    image."""

    def cut_image(root: Node) -> Layer | None:
        image = make_image(root)
        return None if image is None else cut(image)

    return draft_layer_of(body, schedule, "Conv", cut_image, normed)


def draft_layer_of(
    body: Body, schedule: str, op: str, cut: Callable[[Node], Layer | None], normed: NormedImage | None = None
) -> Draft | None:
    """The kernel of the body's only convolution of this op."""
    roots = [node for node in body.ops if node.op == op]
    layer = cut(roots[0]) if len(roots) == 1 else None
    if layer is None:
        return None
    root, problem = roots[0], Problem.of(body)
    given, (_, outs, *pixels) = shape_of(root.reads[0]), shape_of(root[0])
    rank = len(pixels)
    source, weight = problem.value_at(normed.source if normed else root.inputs[0]), problem.weight_at(root.inputs[1])
    if source is None or weight is None:
        return None
    biased = len(root.inputs) > 2 and root.inputs[2] is not None
    beside = {2: (outs, *(1,) * rank)} if biased else {}
    after = make_epilogue(body, root, plus_bias, [(0, 1), (1, 2), (2, 2 + rank)], beside, normed.nodes if normed else ())
    whole = (*given[:2], math.prod(given[2:]))
    if after is None or weight in after.operands or after.operands.get(source, whole) != whole:
        return None
    each = dict.fromkeys((normed.scale, normed.shift) if normed else (), (given[1],))
    shapes = {**after.operands, **each, source: whole, weight: (layer.weights,)}
    kernel, inputs, outputs = problem.kernel("convolution", shapes, [after.results] * len(problem.outputs))
    layer.write(kernel, inputs[source], inputs[weight], Writer(after, inputs, outputs))
    return problem.draft(kernel, schedule, {weight: layer.pack})
