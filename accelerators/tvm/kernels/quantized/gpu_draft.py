"""The common part of a GPU's convolutions of quantized values, whatever their cut."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Protocol

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.language import Buffer, Kernel
from partita.accelerators.tvm.kernels.quantized.cut import Shape
from partita.accelerators.tvm.kernels.quantized.epilogue import (
    BEGINNING,
    IMAGE,
    SCALE,
    WEIGHT,
    make_following,
    scaled,
)
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.graph.types import Array


class Layer(Protocol):
    """One convolution and its cut."""

    @property
    def schedule(self) -> str:
        """The name of its schedule."""

    @property
    def weights(self) -> int:
        """Bytes of the packed weights."""

    def pack(self, array: Array) -> Array:
        """The weights as the loops read them."""

    def write(self, kernel: Kernel, image: Buffer, weight: Buffer, beginning: Buffer, writer: Writer) -> None:
        """Writes all loops; `beginning` is the initial sum of each output channel."""


def draft_quantized(body: Body, op: str, cut: Callable[[Shape, int], Layer]) -> Draft | None:
    """The kernel for the body's only `op`, as cut for its shape and the zero point around the image; None for any other body."""
    roots = [node for node in body.ops if node.domain == DOMAIN and node.op == op]
    shape = Shape.of(roots[0]) if len(roots) == 1 else None
    if shape is None:
        return None
    root, problem = roots[0], Problem.of(body)
    image, weight, beginning = (problem.position(root.inputs[i]) for i in (IMAGE, WEIGHT, BEGINNING))
    scale = root.inputs[SCALE] if len(root.inputs) > SCALE else None
    after = make_following(body, root, scaled, {} if scale is None else {SCALE: shape_of(scale)})
    if after is None or image is None or weight is None or beginning is None or image in after.operands:
        return None
    layer = cut(shape, int(root.attrs["zero"]))
    pixels = prod(shape.window.sizes)
    sizes = (shape.channels, pixels) if shape.is_plain else (pixels, shape.channels)
    shapes = {**after.operands, image: (shape.batch, *sizes), weight: (layer.weights,), beginning: (shape.outs,)}
    kernel, inputs, outputs = problem.kernel("quantized_product", shapes, [after.results] * len(problem.outputs))
    layer.write(kernel, inputs[image], inputs[weight], inputs[beginning], Writer(after, inputs, outputs))
    return problem.draft(kernel, layer.schedule, {weight: layer.pack})
