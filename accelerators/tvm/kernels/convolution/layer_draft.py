"""A convolution by constant weights, and what follows it, as one kernel: what all ways to cut one have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.convolution.image import Image, make_image
from partita.accelerators.tvm.kernels.convolution.normed_image import NormedImage
from partita.accelerators.tvm.kernels.language import Buffer, Kernel
from partita.accelerators.tvm.kernels.shared.draft import Draft
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, make_epilogue, plus_bias
from partita.accelerators.tvm.kernels.shared.problem import Problem
from partita.graph.node import Node
from partita.graph.types import Array


class Layer(Protocol):
    """One convolution and its cut."""

    @property
    def weights(self) -> int:
        """How many numbers the packed weights are."""

    def pack(self, array: Array) -> Array:
        """The weights as the loops read them."""

    def write(self, kernel: Kernel, source: Buffer, weight: Buffer, writer: Writer) -> None:
        """All loops."""


def draft_layer(
    body: Body, schedule: str, cut: Callable[[Image], Layer | None], normed: NormedImage | None = None
) -> Draft | None:
    """The body's only convolution as it is cut; None for any other body, and where it is not cut. It reads a value, or what its
    kernel makes of a normed image."""

    def cut_image(root: Node) -> Layer | None:
        image = make_image(root)
        return None if image is None else cut(image)

    return draft_layer_of(body, schedule, "Conv", cut_image, normed)


def draft_layer_of(
    body: Body, schedule: str, op: str, cut: Callable[[Node], Layer | None], normed: NormedImage | None = None
) -> Draft | None:
    """The body's only convolution of this kind as it is cut."""
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
