"""Ops that onnxruntime's optimizer fuses, taken apart again."""

from __future__ import annotations

import math

import numpy as np

from partita.graph.graph import Graph
from partita.graph.microsoft.writing import NoBody, Writing
from partita.graph.node import NodeEntry
from partita.graph.protos import DTYPE_NUMBERS

HALVES = ("float16", "bfloat16")
"""Types of two bytes."""

CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
"""The attributes that a convolution shares with its fused form."""


def matmul(w: Writing) -> Graph:
    """FusedMatMul and its older name TransposeMatMul: of either matrix the last two dimensions, or those of the batch, may be
    turned, and the product is multiplied by a number."""
    left = _turned(w, 0, "transA", "transBatchA")
    right = _turned(w, 1, "transB", "transBatchB")
    product, alpha = w.op("MatMul", left, right), float(w.attr("alpha", 1.0))
    return w.done(product if alpha == 1.0 else w.op("Mul", product, w.like(0, alpha)))


def _turned(w: Writing, i: int, flag: str, batch_flag: str) -> NodeEntry:
    """The rows of a batch stand at the front where the batch is turned, as [rows, batch, columns]."""
    rank = w.rank(i)
    perm = list(range(rank))
    if w.attr(batch_flag, 0) and rank > 2:
        perm = [*perm[1:-1], 0, perm[-1]]
    if w.attr(flag, 0) and rank > 1:
        perm[-2:] = perm[:-3:-1]
    return w.transposed(w.input(i), perm)


def gemm(w: Writing) -> Graph:
    """FusedGemm: a Gemm and its activation."""
    result = w.op("Gemm", *[w.input(i) for i in range(3) if w.has(i)], **w.attrs("alpha", "beta", "transA", "transB"))
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return w.done(_activated(w, result, [float(w.node.attrs[name]) for name in names if name in w.node.attrs]))


def conv(w: Writing) -> Graph:
    """FusedConv: a Conv, what is added to it, and its activation."""
    result = w.op("Conv", *[w.input(i) for i in range(3) if w.has(i)], **w.attrs(*CONV))
    summed = w.op("Add", result, w.input(3)) if w.has(3) else result
    return w.done(_activated(w, summed, [float(value) for value in w.attr("activation_params", ())]))


def _activated(w: Writing, x: NodeEntry, given: list[float]) -> NodeEntry:
    name = w.attr("activation", "")
    if not name:
        return x
    if name in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign"):
        return w.op(name, x)
    if name == "LeakyRelu":
        return w.op(name, x, alpha=given[0] if given else 0.01)
    if name == "HardSigmoid":
        return w.op(name, x, **dict(zip(("alpha", "beta"), given)))
    if name == "Clip":
        return w.op(name, x, *[w.like(0, value) for value in given])
    raise NoBody(f"the activation {name!r} is not known", where=w.where)


def gelu(w: Writing) -> Graph:
    """Gelu and BiasGelu, by the error function."""
    x = w.op("Add", w.input(0), w.input(1)) if w.has(1) else w.input(0)
    half = w.op("Mul", x, w.like(0, 0.5))
    return w.done(w.op("Mul", half, w.op("Add", w.op("Erf", w.op("Mul", x, w.like(0, math.sqrt(0.5)))), w.like(0, 1.0))))


def fast_gelu(w: Writing) -> Graph:
    """FastGelu, by the hyperbolic tangent."""
    x = w.op("Add", w.input(0), w.input(1)) if w.has(1) else w.input(0)
    first, third = math.sqrt(2 / math.pi), 0.044715 * math.sqrt(2 / math.pi)
    cubic = w.op("Add", w.op("Mul", w.op("Mul", x, x), w.like(0, third)), w.like(0, first))
    half = w.op("Mul", x, w.like(0, 0.5))
    return w.done(w.op("Mul", half, w.op("Add", w.op("Tanh", w.op("Mul", x, cubic)), w.like(0, 1.0))))


def quick_gelu(w: Writing) -> Graph:
    """QuickGelu: x times the sigmoid of a multiple of x."""
    x, alpha = w.input(0), float(w.attr("alpha", 1.702))
    return w.done(w.op("Mul", x, w.op("Sigmoid", w.op("Mul", x, w.like(0, alpha)))))


def skip_layer_norm(w: Writing) -> Graph:
    """SkipLayerNormalization: the sum of two values and a bias, and its norm."""
    summed = _summed(w, 4)
    scales = [_wide(w, i) if w.has(i) else None for i in (2, 3)]
    result, *rest = w.ops("LayerNormalization", 3, summed, *scales, epsilon=float(w.attr("epsilon", 1e-12)), axis=-1)
    return w.done(_narrow(w, result), *rest, _narrow(w, summed)) if len(w.node.output_names) > 1 else w.done(_narrow(w, result))


def simplified_skip_layer_norm(w: Writing) -> Graph:
    """SkipSimplifiedLayerNormalization: the sum of two values and a bias, divided by the root of its mean square."""
    summed = _summed(w, 3)
    mean = w.op("ReduceMean", w.op("Mul", summed, summed), w.array([-1]), keepdims=1)
    epsilon = w.array(float(w.attr("epsilon", 1e-5)), "float64" if w.type(0).dtype == "float64" else "float32")
    root = w.op("Sqrt", w.op("Add", mean, epsilon))
    result = _narrow(w, w.op("Mul", w.op("Div", summed, root), _wide(w, 2)))
    return w.done(result, w.op("Identity", mean), w.op("Reciprocal", root), _narrow(w, summed))


def _summed(w: Writing, bias: int) -> NodeEntry:
    """The sum of the first two inputs and a bias, of which halves are summed in float32: a square of 300 is none of theirs."""
    total = w.op("Add", _wide(w, 0), _wide(w, 1))
    return w.op("Add", total, _wide(w, bias)) if w.has(bias) else total


def _wide(w: Writing, i: int) -> NodeEntry:
    """An input, of a type of two bytes in float32."""
    return w.op("Cast", w.input(i), to=1) if w.type(i).dtype in HALVES else w.input(i)


def _narrow(w: Writing, x: NodeEntry) -> NodeEntry:
    """A result in the type of the first input."""
    return w.op("Cast", x, to=DTYPE_NUMBERS[w.type(0).dtype]) if w.type(0).dtype in HALVES else x


def embed_layer_norm(w: Writing) -> Graph:
    """EmbedLayerNormalization: the embeddings of words, of positions and of segments, and the norm of their sum.

    Its second result counts for each row of the mask how many words are there."""
    summed = w.op("Gather", w.input(2), w.input(0))
    if w.has(8):
        positions = w.op("Gather", w.input(3), w.input(8))
    else:
        length = w.op("Gather", w.op("Shape", w.input(0)), w.array([1]))
        positions = w.op("Slice", w.input(3), w.array([0]), length, w.array([0]))
    summed = w.op("Add", summed, positions)
    if w.has(4):
        summed = w.op("Add", summed, w.op("Gather", w.input(4), w.input(1)))
    count = len(w.node.output_names)
    normed = w.op("LayerNormalization", summed, w.input(5), w.input(6), epsilon=float(w.attr("epsilon", 1e-12)))
    if count == 1:
        return w.done(normed)
    if w.has(7):
        mask = w.op("ReduceSum", w.op("Cast", w.input(7), to=6), w.array([1]), keepdims=0)
    else:
        rows = w.op("Gather", w.op("Shape", w.input(0)), w.array([0]))
        mask = w.op("Expand", w.array(0, np.int32), rows)
    return w.done(normed, mask, summed)
