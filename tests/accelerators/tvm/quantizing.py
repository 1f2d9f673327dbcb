"""Graphs of quantized values, and what they come to in whole numbers."""

from __future__ import annotations

import attrs
import numpy as np

import partita as pt
from partita.graph.types import Array
from tests.accelerators.tvm.running import number


def integers(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Integers of every size that the element type has."""
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def dequantized(
    given: pt.Node | Array, scale: float | Array, point: int | None = None, axis: int = 1, dtype: str = ""
) -> pt.Node:
    """The integers as numbers."""
    node = pt.constant(given) if isinstance(given, np.ndarray) else given
    kind = dtype or str(node.output_types[0].dtype)  # type: ignore[union-attr]
    points = () if point is None else (pt.constant(np.asarray(point, kind)),)
    return pt.op("DequantizeLinear", node, pt.constant(np.asarray(scale, np.float32)), *points, axis=axis)


def quantized(given: pt.Node, scale: float, point: int, dtype: str = "uint8") -> pt.Node:
    """The numbers as integers."""
    return pt.op("QuantizeLinear", given, number(scale), pt.constant(np.asarray(point, dtype)))


@attrs.frozen
class Layer:
    """A convolution between DequantizeLinear and QuantizeLinear, as quantizers write it."""

    channels: int
    outs: int
    size: tuple[int, int]
    taps: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    group: int = 1
    batch: int = 1
    point: int = 9
    dtype: str = "uint8"
    after: int = 3
    stored: str = "uint8"
    relu: bool = False
    biased: bool = True

    scale = np.float32(0.02)
    result = np.float32(0.11)

    @property
    def weight(self) -> Array:
        return integers(1, (self.outs, self.channels // self.group, *self.taps), "int8")

    @property
    def scales(self) -> Array:
        depth = self.channels // self.group * self.taps[0] * self.taps[1]
        return np.random.default_rng(2).uniform(0.02, 0.04, self.outs).astype("f") / np.float32(np.sqrt(depth))

    @property
    def bias(self) -> Array:
        return np.random.default_rng(3).integers(-3000, 3000, self.outs).astype(np.int32)

    def given(self, seed: int = 0) -> Array:
        """An image."""
        return integers(seed, (self.batch, self.channels, *self.size), self.dtype)

    def node(self, x: pt.Node) -> pt.Node:
        """The layer of an image."""
        inputs = [dequantized(x, self.scale, self.point, dtype=self.dtype), dequantized(self.weight, self.scales, axis=0)]
        if self.biased:
            inputs.append(dequantized(self.bias, self.scale * self.scales, axis=0))
        outcome = pt.op("Conv", *inputs, strides=self.strides, dilations=self.dilations, pads=self.pads, group=self.group)
        return quantized(pt.op("Relu", outcome) if self.relu else outcome, float(self.result), self.after, self.stored)

    def graph(self) -> pt.Graph:
        """The layer by itself."""
        x = pt.variable("x", self.dtype, (self.batch, self.channels, *self.size))
        return pt.apply_pass(pt.Graph([self.node(x)]), "InferShape")

    def sums(self, x: Array) -> Array:
        """The exact sums."""
        top, left, down, right = self.pads
        image = np.pad(x.astype(np.int64) - self.point, ((0, 0), (0, 0), (top, down), (left, right)))
        spans = [(k - 1) * d + 1 for k, d in zip(self.taps, self.dilations, strict=True)]
        rows, columns = (
            (n - span) // step + 1 for n, span, step in zip(image.shape[2:], spans, self.strides, strict=True)
        )
        own, each = self.channels // self.group, self.outs // self.group
        total = np.zeros((self.batch, self.outs, rows, columns), np.int64)
        for group in range(self.group):
            part, weight = image[:, group * own :][:, :own], self.weight[group * each :][:each].astype(np.int64)
            for ky, kx in np.ndindex(*self.taps):
                first, start = ky * self.dilations[0], kx * self.dilations[1]
                seen = part[:, :, first :: self.strides[0], start :: self.strides[1]][:, :, :rows, :columns]
                total[:, group * each :][:, :each] += np.einsum("oc,nchw->nohw", weight[:, :, ky, kx], seen)
        return total + (self.bias[:, None, None] if self.biased else 0)

    def expected(self, x: Array) -> Array:
        """What the layer makes: sums, scaled once, rounded half to even, saturated."""
        factor = (self.scale * self.scales).astype("f") / self.result
        numbers = self.sums(x).astype("f") * factor[:, None, None]
        numbers = np.maximum(numbers, 0) if self.relu else numbers
        info = np.iinfo(self.stored)
        return np.clip(np.rint(numbers) + self.after, info.min, info.max).astype(self.stored)
