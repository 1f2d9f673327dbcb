"""Random graphs whose sizes are symbols: compiled once, and right at every size that comes, 0 and 1 among them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt

random = np.random.default_rng(6)

Step = Callable[[pt.Node, pt.Node], pt.Node]
"""What is made of a value; the second one is the graph's input."""

FAR = 2**40


def numbers(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def weight(*shape: int) -> pt.Node:
    return pt.constant(numbers(*shape) / np.float32(np.sqrt(np.prod(shape[1:]))))


def whole(*values: int) -> pt.Node:
    return pt.constant(np.array(values, np.int64))


def size(x: pt.Node, axis: int) -> pt.Node:
    """One size, as a vector."""
    return pt.op("Shape", x, start=axis, end=axis + 1)


def joined(*sizes: pt.Node) -> pt.Node:
    return pt.op("Concat", *sizes, axis=0)


def part(x: pt.Node, start: int, end: int | pt.Node, axis: int, step: int = 1) -> pt.Node:
    last = whole(end) if isinstance(end, int) else end
    return pt.op("Slice", x, whole(start), last, whole(axis), whole(step))


def attention(x: pt.Node, given: pt.Node) -> pt.Node:
    """Two heads, a causal mask by the length."""
    split = joined(pt.op("Shape", x, end=2), whole(2, 4))
    query, key, value = (
        pt.op("Transpose", pt.op("Reshape", pt.op("MatMul", x, weight(8, 8)), split), perm=[0, 2, 1, 3]) for _ in range(3)
    )
    length = pt.op("Squeeze", size(x, 1), whole(0))
    positions = pt.op("Range", pt.constant(np.array(0)), length, pt.constant(np.array(1)))
    seen = pt.op("LessOrEqual", positions, pt.op("Unsqueeze", positions, whole(1)))
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 1, 3, 2]))
    weights = pt.op("Softmax", pt.op("Where", seen, scores, pt.constant(np.float32(-1e9))), axis=-1)
    mixed = pt.op("Transpose", pt.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    return pt.op("Reshape", mixed, whole(0, 0, 8))


def padded_to(x: pt.Node, axis: int, multiple: int) -> pt.Node:
    """Zeros behind a dimension up to a multiple."""
    lacking = pt.op("Mod", pt.op("Sub", whole(multiple), pt.op("Mod", size(x, axis), whole(multiple))), whole(multiple))
    return pt.op("Pad", x, joined(whole(0), lacking), None, whole(axis))


def windows(x: pt.Node, given: pt.Node) -> pt.Node:
    """Windows of four positions, padded, each mixed by itself, and cut to the length that there was."""
    full = padded_to(x, 1, 4)
    cut = pt.op("Reshape", full, joined(whole(-1, 4, 8)))
    mixed = pt.op("MatMul", pt.op("Softmax", pt.op("MatMul", cut, pt.op("Transpose", cut, perm=[0, 2, 1])), axis=-1), cut)
    return part(pt.op("Reshape", mixed, pt.op("Shape", full)), 0, size(x, 1), 1)


def recurrent(x: pt.Node, given: pt.Node) -> pt.Node:
    layer = pt.op("LSTM", pt.op("Transpose", x, perm=[1, 0, 2]), weight(1, 32, 8), weight(1, 32, 8), hidden_size=8, n_outputs=1)
    return pt.op("Transpose", pt.op("Squeeze", layer, whole(1)), perm=[1, 0, 2])


ROWS: Mapping[str, Step] = {
    "product": lambda x, given: pt.op("MatMul", x, weight(8, 8)),
    "bias": lambda x, given: pt.op("Add", x, weight(8)),
    "gelu": lambda x, given: pt.op("Gelu", x),
    "norm": lambda x, given: pt.op("LayerNormalization", x, weight(8), axis=-1),
    "softmax": lambda x, given: pt.op("Softmax", x, axis=-1),
    "softmax of rows": lambda x, given: pt.op("Softmax", x, axis=1),
    "turned": lambda x, given: pt.op("Transpose", pt.op("Sigmoid", pt.op("Transpose", x, perm=[0, 2, 1])), perm=[0, 2, 1]),
    "centred": lambda x, given: pt.op("Sub", x, pt.op("ReduceMean", x, whole(1), keepdims=1)),
    "doubled": lambda x, given: pt.op("Concat", x, pt.op("Neg", x), axis=1),
    "batch doubled": lambda x, given: pt.op("Concat", x, pt.op("Neg", x), axis=0),
    "halves": lambda x, given: pt.op("Concat", *reversed(pt.op("Split", x, axis=1, num_outputs=2, n_outputs=2).outputs), axis=1),
    "without the first": lambda x, given: part(x, 1, FAR, 1),
    "every other": lambda x, given: part(x, 0, FAR, 1, 2),
    "backward": lambda x, given: part(x, -1, -FAR, 1, -1),
    "as long as the input": lambda x, given: part(pt.op("Concat", x, given, axis=1), 0, size(given, 1), 1),
    "last": lambda x, given: pt.op("Add", x, pt.op("Gather", x, whole(-1), axis=1)),
    "attention": attention,
    "windows": windows,
    "sums": lambda x, given: pt.op("CumSum", x, pt.constant(np.array(1))),
    "vector": lambda x, given: pt.op("Mul", x, pt.op("Unsqueeze", pt.op("MatMul", x, weight(8)), whole(2))),
    "groups": lambda x, given: pt.op("Reshape", pt.op("Einsum", x, weight(8, 2, 4), equation="nsd,dke->nkse"), pt.op("Shape", x)),
    "scaled": lambda x, given: pt.op("Einsum", x, weight(8), equation="nsd,d->nsd"),
    "flat": lambda x, given: pt.op("Reshape", pt.op("Relu", pt.op("Reshape", x, whole(-1, 8))), pt.op("Shape", x)),
    "padded": lambda x, given: pt.op("Pad", x, whole(0, 1, 0, 0, 2, 0)),
    "repeated": lambda x, given: pt.op("Tile", x, whole(1, 2, 1)),
    # The element at the position: of elements that are almost equal either position is right.
    "largest": lambda x, given: pt.op("Add", x, pt.op("GatherElements", x, pt.op("ArgMax", x, axis=1), axis=1)),
    "top": lambda x, given: pt.op("TopK", x, whole(1), axis=1, n_outputs=2),
    "lstm": recurrent,
}
"""Ops that keep [N, S, 8], whatever N and S become."""


def resized(x: pt.Node, like: pt.Node, mode: str) -> pt.Node:
    """As large as another image."""
    sizes = joined(pt.op("Shape", x, end=2), pt.op("Shape", like, start=2))
    return pt.op("Resize", x, None, None, sizes, mode=mode)


def cropped(x: pt.Node, given: pt.Node) -> pt.Node:
    """Padded to multiples of four, halved and doubled, and cut to what there was."""
    full = padded_to(padded_to(x, 2, 4), 3, 4)
    small = pt.op("Conv", full, weight(4, 4, 2, 2), strides=[2, 2])
    large = pt.op("ConvTranspose", small, weight(4, 4, 2, 2), strides=[2, 2])
    return part(part(large, 0, size(x, 2), 2), 0, size(x, 3), 3)


IMAGES: Mapping[str, Step] = {
    "conv": lambda x, given: pt.op("Conv", x, weight(4, 4, 3, 3), weight(4), pads=[1] * 4),
    "strided": lambda x, given: pt.op("Conv", x, weight(4, 4, 3, 3), pads=[1] * 4, strides=[2, 2]),
    "depthwise": lambda x, given: pt.op("Conv", x, weight(4, 1, 3, 3), pads=[1] * 4, group=4),
    "valid": lambda x, given: pt.op("Conv", x, weight(4, 4, 2, 2)),
    "relu": lambda x, given: pt.op("Relu", x),
    "residual": lambda x, given: pt.op("Add", x, pt.op("Conv", x, weight(4, 4, 1, 1))),
    "largest": lambda x, given: pt.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]),
    "largest, rounded up": lambda x, given: pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "means": lambda x, given: pt.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
    "excited": lambda x, given: pt.op("Mul", x, pt.op("Sigmoid", pt.op("GlobalAveragePool", x))),
    "enlarged": lambda x, given: pt.op("Resize", x, None, pt.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear"),
    "like the input": lambda x, given: resized(x, given, "linear"),
    "nearest": lambda x, given: resized(x, given, "nearest"),
    "cropped": cropped,
    "transposed": lambda x, given: pt.op("ConvTranspose", x, weight(4, 4, 2, 2), strides=[2, 2]),
    "norm": lambda x, given: pt.op("InstanceNormalization", x, weight(4), weight(4)),
    "softmax": lambda x, given: pt.op("Softmax", x, axis=1),
    "turned": lambda x, given: pt.op("Transpose", x, perm=[0, 1, 3, 2]),
    "reflected": lambda x, given: pt.op("Pad", x, whole(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect"),
    "blocks": lambda x, given: pt.op("Conv", pt.op("SpaceToDepth", x, blocksize=2), weight(4, 16, 1, 1)),
    "flat": lambda x, given: pt.op("Reshape", pt.op("Softmax", pt.op("Reshape", x, whole(0, 0, -1)), axis=-1), pt.op("Shape", x)),
}
"""Ops that keep [N, 4, H, W], whatever N, H and W become."""


def check(steps: Mapping[str, Step], chosen: Sequence[str], dims: Sequence[str | int], sizes: Sequence[Sequence[int]]) -> None:
    """The steps one after another, at each size against the reference; a size that the reference refuses is left out."""
    x = pt.variable("x", "float32", dims)
    value = x
    for step in chosen:
        value = steps[step](value, x)
    graph = pt.Graph([value, pt.op("ReduceSum", value, keepdims=0)], [x])
    model, reference = pt.compile(graph, "HETERO:cpu,reference"), pt.compile(graph, "reference")
    for shape in sizes:
        data = numbers(*shape)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                wanted = reference(data)
            except pt.PartitaError:
                continue
            results = model(data)
        for a, b in zip(results, wanted, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, (shape, a.shape, b.shape)
            finite = np.abs(b[np.isfinite(b)]).max(initial=1.0)
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * float(finite) + 1e-4, err_msg=str(shape))


SOME_ROWS = [(1, 1, 8), (2, 5, 8), (0, 3, 8), (2, 0, 8), (3, 17, 8)]
SOME_IMAGES = [(1, 4, 8, 12), (2, 4, 7, 9), (0, 4, 8, 8), (1, 4, 1, 2), (1, 4, 16, 17)]


def lists_of(steps: Mapping[str, Step], most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(sorted(steps)), min_size=1, max_size=most)


@settings(max_examples=6, deadline=None)
@given(lists_of(ROWS, 4))
def test_rows(chosen: list[str]) -> None:
    check(ROWS, chosen, ("N", "S", 8), SOME_ROWS)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(lists_of(IMAGES, 4))
def test_images(chosen: list[str]) -> None:
    check(IMAGES, chosen, ("N", 4, "H", "W"), SOME_IMAGES)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(lists_of(ROWS, 6))
def test_many_rows(chosen: list[str]) -> None:
    check(ROWS, chosen, ("N", "S", 8), SOME_ROWS)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(lists_of(IMAGES, 5))
def test_many_images(chosen: list[str]) -> None:
    check(IMAGES, chosen, ("N", 4, "H", "W"), SOME_IMAGES)
