"""Models whose inputs have any batch, and texts of any length, as exporters write them; with seeded random weights.

Exports of torch would need torch to be installed. These state the same ops: sizes are worked out in the graph, from Shape."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import attrs
import numpy as np

import partita as pt
from benchmarks.models.own import OWN, unet
from benchmarks.models.zoo import zoo_model

Value = pt.Node

BATCH, LENGTH, HEIGHT, WIDTH = "batch", "length", "height", "width"
"""The symbols."""


@attrs.frozen
class Sizes:
    """The sizes of a transformer; by default those of BERT-base."""

    width: int = 768
    heads: int = 12
    layers: int = 12
    hidden: int = 3072
    words: int = 30522
    longest: int = 512


BERT, GPT2, VIT = Sizes(), Sizes(words=50257, longest=1024), Sizes(words=1000)


class _Writer:
    """Writes the layers of one transformer; a weight is drawn from a seed of its own name."""

    def __init__(self, sizes: Sizes, epsilon: float) -> None:
        self.sizes = sizes
        self.epsilon = epsilon
        self.count = 0

    def weight(self, name: str, *shape: int, around: float = 0.0, scale: float = 0.02) -> Value:
        noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32)
        return pt.constant(np.float32(around) + np.float32(scale) * noise, name=name)

    def linear(self, x: Value, ins: int, outs: int) -> Value:
        self.count += 1
        name = f"linear{self.count}"
        product = pt.op("MatMul", x, self.weight(f"{name}.weight", ins, outs, scale=1.5 * ins**-0.5))
        return pt.op("Add", product, self.weight(f"{name}.bias", outs, scale=0.1))

    def norm(self, x: Value) -> Value:
        self.count += 1
        name, width = f"norm{self.count}", self.sizes.width
        scale, bias = self.weight(f"{name}.scale", width, around=1.0, scale=0.1), self.weight(f"{name}.bias", width, scale=0.1)
        return pt.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=self.epsilon)

    def attention(self, x: Value, masked: Callable[[Value], Value]) -> Value:
        """Queries, keys and values of x; `masked` says what becomes of the scores."""
        width, heads = self.sizes.width, self.sizes.heads
        split, turned = _whole([0, 0, heads, width // heads]), [0, 2, 1, 3]
        query, key, value = (
            pt.op("Transpose", pt.op("Reshape", self.linear(x, width, width), split), perm=perm)
            for perm in (turned, [0, 2, 3, 1], turned)
        )
        scores = pt.op("Mul", pt.op("MatMul", query, key), pt.constant(np.float32((width // heads) ** -0.5)))
        mixed = pt.op("MatMul", pt.op("Softmax", masked(scores), axis=-1), value)
        joined = pt.op("Reshape", pt.op("Transpose", mixed, perm=turned), _whole([0, 0, width]))
        return self.linear(joined, width, width)

    def hidden(self, x: Value, gate: Callable[[Value], Value]) -> Value:
        return self.linear(gate(self.linear(x, self.sizes.width, self.sizes.hidden)), self.sizes.hidden, self.sizes.width)


def bert(sizes: Sizes = BERT) -> pt.Graph:
    """BERT: norms behind each part, a mask of the words that there are."""
    ids, mask, types = (pt.variable(f"{name}_ids", "int64", (BATCH, LENGTH)) for name in ("input", "mask", "type"))
    writer = _Writer(sizes, 1e-12)
    tables = writer.weight("words", sizes.words, sizes.width), writer.weight("types", 2, sizes.width)
    places = pt.op("Gather", writer.weight("places", sizes.longest, sizes.width), _positions(ids))
    x = pt.op("Add", pt.op("Add", pt.op("Gather", tables[0], ids), pt.op("Gather", tables[1], types)), places)
    x = writer.norm(x)
    missing = pt.op("Sub", pt.constant(np.float32(1)), pt.op("Cast", pt.op("Unsqueeze", mask, _whole([1, 2])), to=1))
    added = pt.op("Mul", missing, pt.constant(np.finfo(np.float32).min))
    for _ in range(sizes.layers):
        x = writer.norm(pt.op("Add", writer.attention(x, lambda scores: pt.op("Add", scores, added)), x))
        x = writer.norm(pt.op("Add", writer.hidden(x, _gelu), x))
    return pt.Graph([x], [ids, mask, types], "bert")


def gpt2(sizes: Sizes = GPT2) -> pt.Graph:
    """GPT-2 without a cache: norms before each part, and nobody sees what comes later."""
    ids = pt.variable("input_ids", "int64", (BATCH, LENGTH))
    writer, positions = _Writer(sizes, 1e-5), _positions(ids)
    table = writer.weight("words", sizes.words, sizes.width)
    places = pt.op("Gather", writer.weight("places", sizes.longest, sizes.width), positions)
    x = pt.op("Add", pt.op("Gather", table, ids), places)
    seen = pt.op("LessOrEqual", positions, pt.op("Unsqueeze", positions, _whole([1])))

    def masked(scores: Value) -> Value:
        return pt.op("Where", seen, scores, pt.constant(np.finfo(np.float32).min))

    for _ in range(sizes.layers):
        x = pt.op("Add", writer.attention(writer.norm(x), masked), x)
        x = pt.op("Add", writer.hidden(writer.norm(x), _gelu_tanh), x)
    head = writer.weight("head", sizes.width, sizes.words)
    return pt.Graph([pt.op("MatMul", writer.norm(x), head)], [ids], "gpt2")


def vit(sizes: Sizes = VIT, side: int = 224) -> pt.Graph:
    """A ViT of square images of this side, in patches of 16 pixels."""
    image = pt.variable("image", "float32", (BATCH, 3, side, side))
    return _vit(sizes, image, lambda writer, _: writer.weight("places", 1, (side // 16) ** 2 + 1, sizes.width))


def vit_of_any_image(sizes: Sizes = VIT, side: int = 14) -> pt.Graph:
    """A ViT whose positions were learned on so many patches squared, and are interpolated for other images."""

    def places(writer: _Writer, patches: Value) -> Value:
        size = pt.op("Concat", _whole([1, sizes.width]), pt.op("Shape", patches, start=2, end=4), axis=0)
        learned = pt.op("Resize", writer.weight("places", 1, sizes.width, side, side), None, None, size, mode="cubic")
        flat = pt.op("Transpose", pt.op("Reshape", learned, _whole([0, sizes.width, -1])), perm=[0, 2, 1])
        return pt.op("Concat", writer.weight("place", 1, 1, sizes.width), flat, axis=1)

    return _vit(sizes, pt.variable("image", "float32", (BATCH, 3, HEIGHT, WIDTH)), places)


def _vit(sizes: Sizes, image: Value, places: Callable[[_Writer, Value], Value]) -> pt.Graph:
    writer = _Writer(sizes, 1e-12)
    cut = pt.op("Conv", image, writer.weight("patches", sizes.width, 3, 16, 16, scale=0.05), strides=[16, 16])
    patches = pt.op("Transpose", pt.op("Reshape", cut, _whole([0, sizes.width, -1])), perm=[0, 2, 1])
    size = pt.op("Concat", pt.op("Shape", image, start=0, end=1), _whole([1, sizes.width]), axis=0)
    first = pt.op("Expand", writer.weight("first", 1, 1, sizes.width), size)
    x = pt.op("Add", pt.op("Concat", first, patches, axis=1), places(writer, cut))
    for _ in range(sizes.layers):
        x = pt.op("Add", writer.attention(writer.norm(x), lambda scores: scores), x)
        x = pt.op("Add", writer.hidden(writer.norm(x), _gelu), x)
    one = pt.op("Gather", writer.norm(x), pt.constant(np.array(0)), axis=1)
    return pt.Graph([writer.linear(one, sizes.width, sizes.words)], [image], "vit")


MODELS: Mapping[str, Callable[[], pt.Graph]] = {
    "bert": bert,
    "gpt2": gpt2,
    "vit": vit,
    "vit-160": lambda: vit(side=160),
    "vit-288": lambda: vit(side=288),
    "vit-any": vit_of_any_image,
    "resnet50": lambda: zoo_model("resnet50", BATCH),
    "mobilenet_v2": lambda: OWN["mobilenet_v2"](BATCH),
    "unet": lambda: OWN["unet"](BATCH),
    "unet-any": lambda: unet(BATCH, (HEIGHT, WIDTH)),
    "squeezenet": lambda: zoo_model("squeezenet", BATCH),
}
"""What writes each model."""


def _positions(ids: Value) -> Value:
    """0, 1, 2, … for each word of a text."""
    length = pt.op("Gather", pt.op("Shape", ids), pt.constant(np.array(1)))
    return pt.op("Range", pt.constant(np.array(0)), length, pt.constant(np.array(1)))


def _gelu(x: Value) -> Value:
    scaled = pt.op("Erf", pt.op("Div", x, pt.constant(np.float32(2**0.5))))
    whole = pt.op("Mul", x, pt.op("Add", scaled, pt.constant(np.float32(1))))
    return pt.op("Mul", whole, pt.constant(np.float32(0.5)))


def _gelu_tanh(x: Value) -> Value:
    cube = pt.op("Mul", pt.op("Pow", x, pt.constant(np.float32(3))), pt.constant(np.float32(0.044715)))
    inner = pt.op("Mul", pt.op("Add", x, cube), pt.constant(np.float32((2 / np.pi) ** 0.5)))
    half = pt.op("Mul", x, pt.constant(np.float32(0.5)))
    return pt.op("Mul", half, pt.op("Add", pt.op("Tanh", inner), pt.constant(np.float32(1))))


def _whole(numbers: list[int]) -> Value:
    return pt.constant(np.array(numbers, np.int64))
