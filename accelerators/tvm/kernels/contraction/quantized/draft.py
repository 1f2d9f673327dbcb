"""The common part of kernels for convolutions of quantized values and for products by constant weights."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Protocol

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.contraction.quantized.cut import ByteShape
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Value, float32
from partita.accelerators.tvm.kernels.shared.element_access import Shape as Sizes
from partita.accelerators.tvm.kernels.shared.elementwise import Numbers
from partita.accelerators.tvm.kernels.shared.epilogue import Epilogue, Writer, make_channel_epilogue
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.graph.node import Node
from partita.graph.types import Array

IMAGE, WEIGHT, BEGINNING, SCALE = range(4)
"""The inputs: unsigned bytes, signed bytes, initial sums, and the scale of the results; without a scale, these are the sums."""


@attrs.frozen(slots=True, eq=False)
class ByteLayer:
    """A convolution of a body, and the ops after it."""

    problem: Problem
    root: Node
    shape: ByteShape
    after: Epilogue
    image: int
    """Index of the body's input with the bytes."""
    weight: int
    """Index of the body's input with the weights."""
    beginning: int
    """Index of the body's input with the initial sums."""

    @classmethod
    def of(cls, body: Body, op: str) -> ByteLayer | None:
        """The body's only `op`; None for any other body."""
        roots = [node for node in body.ops if node.domain == DOMAIN and node.op == op]
        if len(roots) != 1:
            return None
        root, problem = roots[0], Problem.of(body)
        image, weight, beginning = (problem.position(root.inputs[i]) for i in (IMAGE, WEIGHT, BEGINNING))
        scale = root.inputs[SCALE] if len(root.inputs) > SCALE else None
        after = make_channel_epilogue(body, root, _scaled, {} if scale is None else {SCALE: shape_of(scale)})
        if after is None or image is None or weight is None or beginning is None or image in after.operands:
            return None
        return cls(problem, root, ByteShape.of(root), after, image, weight, beginning)

    @property
    def zero(self) -> int:
        """The image's zero point, which fills the padding."""
        return int(self.root.attrs["zero"])

    def kernel(
        self, name: str, image: Sizes, weights: int, beginnings: int
    ) -> tuple[Kernel, tuple[Buffer, Buffer, Buffer], Writer]:
        """A kernel for an image of this shape and these numbers of packed weights and initial sums, with the buffers of the three
        and the writer of the results."""
        shapes = {**self.after.operands, self.image: image, self.weight: (weights,), self.beginning: (beginnings,)}
        kernel, inputs, outputs = self.problem.kernel(name, shapes, [self.after.results] * len(self.problem.outputs))
        buffers = inputs[self.image], inputs[self.weight], inputs[self.beginning]
        return kernel, buffers, Writer(self.after, inputs, outputs)


def _scaled(node: Node, x: Numbers) -> Value:
    """The float that a sum represents."""
    total: Value = x[0] if len(x) <= SCALE + 1 or x[SCALE + 1] is None else x[0].cast(float32) * x[SCALE + 1]
    return total


def times_scale(node: Node, x: Numbers) -> Value:
    """A mean or a blend of integers minus their zero point, times its scale, which is the root's second input."""
    number: Value = x[0] * x[2]
    return number


class GpuLayer(Protocol):
    """One convolution and its cut for a GPU."""

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


def draft_on_gpu(body: Body, op: str, cut: Callable[[ByteShape, int], GpuLayer]) -> Draft | None:
    """The kernel for the body's only `op`; None for any other body. `cut` takes its shape and the zero point of the image."""
    layer = ByteLayer.of(body, op)
    if layer is None:
        return None
    shape, on_gpu = layer.shape, cut(layer.shape, layer.zero)
    pixels = prod(shape.window.sizes)
    image = (shape.batch, shape.channels, pixels) if shape.is_plain else (shape.batch, pixels, shape.channels)
    kernel, buffers, writer = layer.kernel("quantized_product", image, on_gpu.weights, shape.outs)
    on_gpu.write(kernel, *buffers, writer)
    return layer.problem.draft(kernel, on_gpu.schedule, {layer.weight: on_gpu.pack})
