"""Decoders as exporters write them: any batch, any number of new tokens after any number of earlier ones, whose keys and values
come in as `past` and go out, with the new ones behind them, as `present`.

`gpt2` has learned positions and a mask cut from a table, `llama` turned positions (rotary), grouped queries and a mask that is
compared from ranges. `style="op"` writes ONNX's own Attention, which takes past and present itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs
import numpy as np

import partita as pt

Value = pt.Node | pt.NodeEntry

LEAST = float(np.finfo(np.float32).min)
"""What torch adds where nothing may be seen."""


@attrs.frozen
class Sizes:
    """The sizes of a decoder; by default those of GPT-2 with 124 million weights."""

    width: int = 768
    heads: int = 12
    groups: int = 12
    """Heads of keys and values; each serves as many heads of queries."""
    layers: int = 12
    words: int = 50257
    longest: int = 1024
    """How many positions there are."""
    hidden: int = 3072
    """Columns of the wide products."""
    position_ids: bool = True
    """Are positions an input? Else they follow from the sizes."""
    tied: bool = True
    """Is GPT-2's table of words also what the last product multiplies by? Else that is a matrix of the same numbers."""
    style: str = "ops"
    """`ops`: attention in its parts; `op`: ONNX's Attention."""

    @property
    def each(self) -> int:
        """Numbers of one head."""
        return self.width // self.heads


LLAMA = Sizes(width=768, heads=12, groups=4, layers=12, words=32000, longest=2048, hidden=2048)
"""A model of some 120 million weights."""

SMALL = Sizes(width=32, heads=4, groups=4, layers=2, words=50, longest=64, hidden=64)
"""A model for tests."""

SMALL_LLAMA = attrs.evolve(SMALL, groups=2)
"""The same with grouped queries."""


def gpt2(sizes: Sizes) -> pt.Graph:
    """GPT-2, its positions in a table."""
    return _Gpt2(sizes).graph("gpt2")


def llama(sizes: Sizes) -> pt.Graph:
    """A model like Llama."""
    return Llama(sizes).graph("llama")


class _Decoder(ABC):
    """What both have in common: the caches, and attention."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.random = np.random.default_rng(0)
        self.ids = pt.variable("input_ids", "int64", ("batch", "sequence"))
        self.mask = pt.variable("attention_mask", "int64", ("batch", "total"))
        self.inputs = [self.ids, self.mask]
        self.positions: Value
        self.caches: list[pt.Node] = []
        for layer in range(sizes.layers):
            for what in ("key", "value"):
                shape = ("batch", sizes.groups, "past", sizes.each)
                self.caches.append(pt.variable(f"past_key_values.{layer}.{what}", "float32", shape))
        self.present: list[Value] = []
        if sizes.position_ids:
            self.positions = pt.variable("position_ids", "int64", ("batch", "sequence"))
            self.inputs.append(self.positions)
        self.new = size(self.ids, 1)
        self.past = size(self.caches[0], 2)
        self.total = pt.op("Add", self.past, self.new)
        if not sizes.position_ids:
            counted = pt.op("Range", scalar(self.past), scalar(self.total), pt.constant(np.int64(1)))
            self.positions = pt.op("Unsqueeze", counted, numbers(0))
        self.inputs += self.caches

    def graph(self, name: str) -> pt.Graph:
        outputs = [self.scores(), *self.present]
        names = ["logits"]
        names += [f"present.{layer}.{what}" for layer in range(self.sizes.layers) for what in ("key", "value")]
        graph = pt.Graph(outputs, self.inputs, name, opsets={"": 24 if self.sizes.style == "op" else 21}, output_names=names)
        return pt.apply_pass(graph, "InferShape", strict=False)

    @abstractmethod
    def scores(self) -> Value:
        """The scores of the next word at each position."""

    def noise(self, name: str, shape: Sequence[int], scale: float, around: float = 0.0) -> pt.Node:
        array = self.random.standard_normal(tuple(shape), np.float32) * np.float32(scale) + np.float32(around)
        return pt.constant(array, name)

    def linear(self, name: str, x: Value, depth: int, columns: int, bias: bool) -> Value:
        product = pt.op("MatMul", x, self.noise(f"{name}.weight", (depth, columns), depth**-0.5), name=name)
        return pt.op("Add", product, self.noise(f"{name}.bias", (columns,), 0.02)) if bias else product

    def in_heads(self, x: Value, heads: int) -> Value:
        sizes = pt.op("Concat", size(x, 0), size(x, 1), numbers(heads), numbers(self.sizes.each), axis=0)
        return pt.op("Transpose", pt.op("Reshape", x, sizes), perm=[0, 2, 1, 3])

    def joined(self, x: Value) -> Value:
        turned = pt.op("Transpose", x, perm=[0, 2, 1, 3])
        return pt.op("Reshape", turned, pt.op("Concat", size(turned, 0), size(turned, 1), numbers(self.sizes.width), axis=0))

    def attend(self, layer: int, query: Value, key: Value, value: Value) -> Value:
        """One layer's attention, whose keys and values become outputs."""
        past = self.caches[2 * layer : 2 * layer + 2]
        if self.sizes.style == "op":
            inputs = query, key, value, self.visible(), *past
            outputs = pt.op("Attention", *inputs, n_outputs=3, opset=24, name=f"{layer}.attention")
            self.present += [outputs[1], outputs[2]]
            return self.joined(outputs[0])
        key, value = pt.op("Concat", past[0], key, axis=2), pt.op("Concat", past[1], value, axis=2)
        self.present += [key, value]
        if self.sizes.groups < self.sizes.heads:
            key, value = self.repeated(key), self.repeated(value)
        scores: Value = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.masked(pt.op("Div", scores, pt.constant(np.float32(self.sizes.each**0.5))))
        return self.joined(pt.op("MatMul", pt.op("Softmax", scores, axis=-1), value))

    def repeated(self, x: Value) -> Value:
        """Each head of keys, or of values, once for each head of queries that reads it."""
        sizes, times = self.sizes, self.sizes.heads // self.sizes.groups
        wide = pt.op("Unsqueeze", x, numbers(2))
        target = [size(x, 0), numbers(sizes.groups), numbers(times), size(x, 2), numbers(sizes.each)]
        spread = pt.op("Expand", wide, pt.op("Concat", *target, axis=0))
        joined = [size(x, 0), numbers(sizes.heads), size(x, 2), numbers(sizes.each)]
        return pt.op("Reshape", spread, pt.op("Concat", *joined, axis=0))

    def visible(self) -> Value:
        """For each new token and each token, whether the one sees the other, as truth values."""
        causal = pt.op("Unsqueeze", pt.op("GreaterOrEqual", self.rows(), self.columns()), numbers(0, 1))
        return pt.op("And", causal, pt.op("Cast", pt.op("Unsqueeze", self.mask, numbers(1, 2)), to=9))

    def rows(self) -> Value:
        """The position of each new token, one below the other."""
        return pt.op("Unsqueeze", pt.op("Range", scalar(self.past), scalar(self.total), pt.constant(np.int64(1))), numbers(1))

    def columns(self) -> Value:
        """All positions side by side."""
        zero, one = pt.constant(np.int64(0)), pt.constant(np.int64(1))
        return pt.op("Unsqueeze", pt.op("Range", zero, scalar(self.total), one), numbers(0))

    @abstractmethod
    def masked(self, scores: Value) -> Value:
        """The scores with what may not be seen made small."""


class _Gpt2(_Decoder):
    def scores(self) -> Value:
        sizes = self.sizes
        table = self.noise("words", (sizes.words, sizes.width), 0.02)
        places = self.noise("positions", (sizes.longest, sizes.width), 0.01)
        self.table = pt.constant(np.tril(np.ones((1, 1, sizes.longest, sizes.longest), bool)), "bias")
        hidden = pt.op("Cast", pt.op("Unsqueeze", self.mask, numbers(1, 2)), to=1)
        self.hidden = pt.op("Mul", pt.op("Sub", pt.constant(np.float32(1)), hidden), pt.constant(np.float32(LEAST)))
        x: Value = pt.op("Add", pt.op("Gather", table, self.ids), pt.op("Gather", places, self.positions))
        for layer in range(sizes.layers):
            joined = self.linear(f"{layer}.attn", self.norm(f"{layer}.first", x), sizes.width, 3 * sizes.width, True)
            parts = pt.op("Split", joined, axis=2, num_outputs=3, n_outputs=3, name=f"{layer}.split")
            seen = self.attend(layer, *(self.in_heads(parts[i], sizes.heads) for i in range(3)))
            x = pt.op("Add", x, self.linear(f"{layer}.out", seen, sizes.width, sizes.width, True))
            wide = self.linear(f"{layer}.up", self.norm(f"{layer}.second", x), sizes.width, sizes.hidden, True)
            narrow = self.linear(f"{layer}.down", pt.op("Gelu", wide, approximate="tanh"), sizes.hidden, sizes.width, True)
            x = pt.op("Add", x, narrow)
        assert table.value is not None
        turned = pt.op("Transpose", table, perm=[1, 0]) if sizes.tied else pt.constant(table.value.T.copy(), "head.weight")
        return pt.op("MatMul", self.norm("last", x), turned, name="head")

    def norm(self, name: str, x: Value) -> Value:
        scale = self.noise(f"{name}.scale", (self.sizes.width,), 0.1, 1.0)
        bias = self.noise(f"{name}.bias", (self.sizes.width,), 0.1)
        return pt.op("LayerNormalization", x, scale, bias, axis=-1)

    def masked(self, scores: Value) -> Value:
        rows = pt.op("Slice", self.table, self.past, self.total, numbers(2))
        bias = pt.op("Slice", rows, numbers(0), self.total, numbers(3))
        return pt.op("Add", pt.op("Where", bias, scores, pt.constant(np.float32(LEAST))), self.hidden)


class Llama(_Decoder):
    """A model like Llama: a test may change how it sees."""

    def scores(self) -> Value:
        sizes = self.sizes
        table = self.noise("words", (sizes.words, sizes.width), 1.0)
        half = sizes.each // 2
        frequencies = pt.constant((10000.0 ** (-np.arange(half, dtype=np.float32) / half)).reshape(1, 1, half), "frequencies")
        angles = pt.op("Mul", pt.op("Cast", pt.op("Unsqueeze", self.positions, numbers(2)), to=1), frequencies)
        both = pt.op("Unsqueeze", pt.op("Concat", angles, angles, axis=2), numbers(1))
        self.cos, self.sin = pt.op("Cos", both), pt.op("Sin", both)
        none = pt.constant(np.float32(0)), pt.constant(np.float32(LEAST))
        self.hidden = None if sizes.style == "op" else pt.op("Where", self.visible(), *none)
        x: Value = pt.op("Gather", table, self.ids)
        for layer in range(sizes.layers):
            read = self.norm(f"{layer}.first", x)
            names = {"q": sizes.heads, "k": sizes.groups, "v": sizes.groups}
            query, key, value = (
                self.in_heads(self.linear(f"{layer}.{name}", read, sizes.width, heads * sizes.each, False), heads)
                for name, heads in names.items()
            )
            seen = self.attend(layer, self.turned(query), self.turned(key), value)
            x = pt.op("Add", x, self.linear(f"{layer}.o", seen, sizes.width, sizes.width, False))
            read = self.norm(f"{layer}.second", x)
            gate, up = (self.linear(f"{layer}.{name}", read, sizes.width, sizes.hidden, False) for name in ("gate", "up"))
            wide = pt.op("Mul", pt.op("Mul", gate, pt.op("Sigmoid", gate)), up)
            x = pt.op("Add", x, self.linear(f"{layer}.down", wide, sizes.hidden, sizes.width, False))
        return self.linear("head", self.norm("last", x), sizes.width, sizes.words, False)

    def norm(self, name: str, x: Value) -> Value:
        mean = pt.op("ReduceMean", pt.op("Pow", x, pt.constant(np.float32(2))), numbers(-1), keepdims=1)
        root = pt.op("Sqrt", pt.op("Add", mean, pt.constant(np.float32(1e-6))))
        return pt.op("Mul", pt.op("Div", x, root), self.noise(name, (self.sizes.width,), 0.1, 1.0))

    def turned(self, x: Value) -> Value:
        half, last, end = numbers(self.sizes.each // 2), numbers(-1), numbers(np.iinfo(np.int64).max)
        first, second = pt.op("Slice", x, numbers(0), half, last), pt.op("Slice", x, half, end, last)
        swapped = pt.op("Concat", pt.op("Neg", second), first, axis=-1)
        return pt.op("Add", pt.op("Mul", x, self.cos), pt.op("Mul", swapped, self.sin))

    def masked(self, scores: Value) -> Value:
        assert self.hidden is not None
        return pt.op("Add", scores, self.hidden)


def size(x: Value, axis: int) -> Value:
    """One of a value's sizes, as a vector of one number."""
    return pt.op("Gather", pt.op("Shape", x), numbers(axis))


def scalar(x: Value) -> Value:
    """The number of a vector of one."""
    return pt.op("Squeeze", x, numbers(0))


def numbers(*values: int) -> pt.Node:
    """A vector of whole numbers."""
    return pt.constant(np.array(values, np.int64))
