"""Three convolutional networks of our own making, with seeded weights drawn so that the signal keeps its size."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

import partita as pt

Value = pt.Node


class Builder:
    """Makes layers; each weight is drawn from a seed of its own name."""

    def __init__(self, batch: int | str, size: int | tuple[int | str, int | str]) -> None:
        height, width = (size, size) if isinstance(size, int) else size
        self.x = pt.variable("image", "float32", (batch, 3, height, width))
        self.channels = {self.x: 3}
        self.count = 0

    def finish(self, value: Value, name: str) -> pt.Graph:
        """The finished graph with its types, as far as they are known of images of any size."""
        return pt.apply_pass(pt.Graph([value], [self.x], name), "InferShape", strict=False)

    def name(self, kind: str) -> str:
        """The next name of a layer."""
        self.count += 1
        return f"{kind}{self.count}"

    def weight(self, name: str, shape: tuple[int, ...], scale: float, around: float = 0.0) -> Value:
        """A constant with normal noise around a number."""
        noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32)
        return pt.constant(np.float32(around) + np.float32(scale) * noise, name=name)

    def conv(self, x: Value, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, gain: float = 2.0) -> Value:
        """A convolution without bias; `gain` is 2 behind a ReLU, 1 behind something linear."""
        name, fan_in = self.name("conv"), self.channels[x] // groups
        weight = self.weight(f"{name}.weight", (out, fan_in, kernel, kernel), (gain / (fan_in * kernel**2)) ** 0.5)
        node = pt.op(
            "Conv", x, weight, name=name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups
        )
        return self.note(node, out)

    def norm(self, x: Value, scale: float = 1.0) -> Value:
        """A batch norm as training leaves it: near one and zero, nowhere exactly."""
        name, channels = self.name("norm"), self.channels[x]
        weights = [
            self.weight(f"{name}.scale", (channels,), 0.1 * scale, scale),
            self.weight(f"{name}.bias", (channels,), 0.1),
            self.weight(f"{name}.mean", (channels,), 0.1),
            self.weight(f"{name}.var", (channels,), 0.1, 1.0),
        ]
        return self.note(pt.op("BatchNormalization", x, *weights, name=name), channels)

    def unary(self, op: str, x: Value, *more: Value, **attrs: Any) -> Value:
        """An op that leaves the number of channels as it is."""
        return self.note(pt.op(op, x, *more, name=self.name(op.lower()), **attrs), self.channels[x])

    def relu6(self, x: Value) -> Value:
        """x, clipped to lie between 0 and 6."""
        return self.unary("Clip", x, pt.constant(np.float32(0), f"{x.name}.min"), pt.constant(np.float32(6), f"{x.name}.max"))

    def swish(self, x: Value) -> Value:
        """x · sigmoid(x)."""
        return self.unary("Mul", x, self.unary("Sigmoid", x))

    def note(self, node: Value, channels: int) -> Value:
        """Remember how many channels a value has."""
        self.channels[node] = channels
        return node

    def classifier(self, x: Value, classes: int = 1000) -> Value:
        """The mean of each channel, then one linear layer."""
        channels = self.channels[x]
        flat = pt.op("Flatten", pt.op("GlobalAveragePool", x, name="pool"), name="flat")
        weight = self.weight("classifier.weight", (classes, channels), channels**-0.5)
        return pt.op("Gemm", flat, weight, self.weight("classifier.bias", (classes,), 0.1), name="logits", transB=1)


def mobilenet_v2(batch: int | str) -> pt.Graph:
    """MobileNetV2 as published: inverted residuals, ReLU6, linear bottlenecks."""
    b = Builder(batch, 224)
    x = b.relu6(b.norm(b.conv(b.x, 32, 3, 2, gain=1)))
    for expand, out, repeats, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):
        for i in range(repeats):
            block, wide = x, expand * b.channels[x]
            if expand > 1:
                block = b.relu6(b.norm(b.conv(x, wide, gain=1)))
            block = b.relu6(b.norm(b.conv(block, wide, 3, 1 if i else stride, wide)))
            block = b.norm(b.conv(block, out), 0.5 if i else 1.0)
            x = b.unary("Add", block, x) if i else block
    return b.finish(b.classifier(b.relu6(b.norm(b.conv(x, 1280, gain=1)))), "mobilenet_v2")


def depthwise(batch: int | str) -> pt.Graph:
    """Depthwise-heavy, on the plan of EfficientNet-B0: 3x3 and 5x5 filters, swish, squeeze and excite."""
    b = Builder(batch, 224)
    x = b.swish(b.norm(b.conv(b.x, 32, 3, 2, gain=1)))
    for expand, kernel, out, repeats, stride in (
        (1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1), (6, 5, 192, 4, 2),
        (6, 3, 320, 1, 1),
    ):
        for i in range(repeats):
            block, wide, narrow = x, expand * b.channels[x], max(1, b.channels[x] // 4)
            if expand > 1:
                block = b.swish(b.norm(b.conv(x, wide, gain=1)))
            block = b.swish(b.norm(b.conv(block, wide, kernel, 1 if i else stride, wide, gain=3)))
            gate = b.swish(b.conv(b.unary("GlobalAveragePool", block), narrow))
            block = b.unary("Mul", block, b.unary("Sigmoid", b.conv(gate, wide)))
            block = b.norm(b.conv(block, out, gain=8), 0.5 if i else 1.0)
            x = b.unary("Add", block, x) if i else block
    return b.finish(b.classifier(b.swish(b.norm(b.conv(x, 1280, gain=1)))), "depthwise")


def unet(batch: int | str, size: int | tuple[int | str, int | str] = 256, width: int = 32, levels: int = 4) -> pt.Graph:
    """A U-Net: the deep half of the way up is learned (ConvTranspose), the rest interpolates (Resize)."""
    b = Builder(batch, size)

    def double(x: Value, out: int, gain: float = 2.0) -> Value:
        x = b.unary("Relu", b.norm(b.conv(x, out, 3, gain=gain)))
        return b.unary("Relu", b.norm(b.conv(x, out, 3)))

    def learned(x: Value, out: int) -> Value:
        name = b.name("up")
        weight = b.weight(f"{name}.weight", (b.channels[x], out, 2, 2), (2 / b.channels[x]) ** 0.5)
        bias = b.weight(f"{name}.bias", (out,), 0.1)
        return b.note(pt.op("ConvTranspose", x, weight, bias, name=name, kernel_shape=[2, 2], strides=[2, 2]), out)

    def interpolated(x: Value, out: int) -> Value:
        name = b.name("resize")
        scales = pt.constant(np.array([1, 1, 2, 2], np.float32), f"{name}.scales")
        return b.conv(b.note(pt.op("Resize", x, None, scales, name=name, mode="linear"), b.channels[x]), out)

    x, skips = double(b.x, width, gain=1), []
    for level in range(1, levels + 1):
        skips.append(x)
        x = double(b.unary("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), width << level)
    for level in reversed(range(levels)):
        up = (learned if level >= levels // 2 else interpolated)(x, width << level)
        joined = pt.op("Concat", skips.pop(), up, name=b.name("concat"), axis=1)
        x = double(b.note(joined, 2 * (width << level)), width << level)
    return b.finish(b.conv(x, 4), "unet")


OWN: dict[str, Callable[[int | str], pt.Graph]] = {"mobilenet_v2": mobilenet_v2, "depthwise": depthwise, "unet": unet}
