"""Decompositions of ops that onnxruntime's optimizer fuses."""

from __future__ import annotations

import math

import numpy as np

from partita.graph.body_builder import BodyBuilder, NoBody
from partita.graph.graph import Graph
from partita.graph.microsoft.table import meaning
from partita.graph.node import NodeEntry
from partita.graph.types import HALVES

CONV = "auto_pad dilations group kernel_shape pads strides"
"""The attributes that a convolution shares with its fused form."""


@meaning("FusedMatMul TransposeMatMul", 13, "alpha transA transB transBatchA transBatchB")
def matmul(b: BodyBuilder) -> Graph:
    """FusedMatMul and its older name TransposeMatMul: a scaled product. Each matrix may be stored with its last two dimensions
    swapped, or with its rows before the batch."""
    left = _transposed(b, 0, "transA", "transBatchA")
    right = _transposed(b, 1, "transB", "transBatchB")
    product, alpha = b.MatMul(left, right), float(b.attr("alpha", 1.0))
    return b.done(product if alpha == 1.0 else b.Mul(product, b.like(0, alpha)))


def _transposed(b: BodyBuilder, i: int, flag: str, batch_flag: str) -> NodeEntry:
    """A matrix transposed as its flags require; with the batch flag it is stored as [rows, batch, columns]."""
    rank = b.rank(i)
    perm = list(range(rank))
    if b.attr(batch_flag, 0) and rank > 2:
        perm = [*perm[1:-1], 0, perm[-1]]
    if b.attr(flag, 0) and rank > 1:
        perm[-2:] = perm[:-3:-1]
    return b.transposed(b.input(i), perm)


@meaning("FusedGemm", 13, "activation activation_alpha activation_beta activation_gamma alpha beta transA transB")
def gemm(b: BodyBuilder) -> Graph:
    """FusedGemm: a Gemm and its activation."""
    result = b.Gemm(*[b.input(i) for i in range(3) if b.has(i)], **b.attrs("alpha", "beta", "transA", "transB"))
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return b.done(_activated(b, result, [float(b.node.attrs[name]) for name in names if name in b.node.attrs]))


@meaning("FusedConv", 13, f"activation activation_params {CONV}")
def conv(b: BodyBuilder) -> Graph:
    """FusedConv: a Conv, an added value, and an activation."""
    result = b.Conv(*[b.input(i) for i in range(3) if b.has(i)], **b.attrs(*CONV.split()))
    summed = b.Add(result, b.input(3)) if b.has(3) else result
    return b.done(_activated(b, summed, [float(value) for value in b.attr("activation_params", ())]))


def _activated(b: BodyBuilder, x: NodeEntry, parameters: list[float]) -> NodeEntry:
    name = b.attr("activation", "")
    if not name:
        return x
    if name in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign"):
        return b.op(name, x)
    if name == "LeakyRelu":
        return b.op(name, x, alpha=parameters[0] if parameters else 0.01)
    if name == "HardSigmoid":
        return b.op(name, x, **dict(zip(("alpha", "beta"), parameters)))
    if name == "Clip":
        return b.op(name, x, *[b.like(0, value) for value in parameters])
    raise NoBody(f"the activation {name!r} is not supported", where=b.where)


@meaning("Gelu BiasGelu", 13)
def gelu(b: BodyBuilder) -> Graph:
    """Gelu and BiasGelu, with the error function."""
    x = b.Add(b.input(0), b.input(1)) if b.has(1) else b.input(0)
    half = b.Mul(x, b.like(0, 0.5))
    return b.done(b.Mul(half, b.Add(b.Erf(b.Mul(x, b.like(0, math.sqrt(0.5)))), b.like(0, 1.0))))


@meaning("FastGelu", 13)
def fast_gelu(b: BodyBuilder) -> Graph:
    """FastGelu, with the hyperbolic tangent."""
    x = b.Add(b.input(0), b.input(1)) if b.has(1) else b.input(0)
    first, third = math.sqrt(2 / math.pi), 0.044715 * math.sqrt(2 / math.pi)
    cubic = b.Add(b.Mul(b.Mul(x, x), b.like(0, third)), b.like(0, first))
    half = b.Mul(x, b.like(0, 0.5))
    return b.done(b.Mul(half, b.Add(b.Tanh(b.Mul(x, cubic)), b.like(0, 1.0))))


@meaning("QuickGelu", 13, "alpha")
def quick_gelu(b: BodyBuilder) -> Graph:
    """QuickGelu: x times the sigmoid of a multiple of x."""
    x, alpha = b.input(0), float(b.attr("alpha", 1.702))
    return b.done(b.Mul(x, b.Sigmoid(b.Mul(x, b.like(0, alpha)))))


@meaning("SkipLayerNormalization", 17, "epsilon")
def skip_layer_norm(b: BodyBuilder) -> Graph:
    """SkipLayerNormalization: the layer norm of the sum of two values and a bias. The sum is an output too."""
    summed = _summed(b, 4)
    scales = [_wide(b, i) if b.has(i) else None for i in (2, 3)]
    result, *rest = b.ops("LayerNormalization", 3, summed, *scales, epsilon=float(b.attr("epsilon", 1e-12)), axis=-1)
    return b.done(_narrow(b, result), *rest, _narrow(b, summed)) if len(b.node.output_names) > 1 else b.done(_narrow(b, result))


@meaning("SkipSimplifiedLayerNormalization", 18, "epsilon")
def simplified_skip_layer_norm(b: BodyBuilder) -> Graph:
    """SkipSimplifiedLayerNormalization: the sum of two values and a bias, divided by its root mean square."""
    summed = _summed(b, 3)
    mean = b.ReduceMean(b.Mul(summed, summed), [-1], keepdims=1)
    epsilon = b.constant(float(b.attr("epsilon", 1e-5)), "float64" if b.type(0).dtype == "float64" else "float32")
    root = b.Sqrt(b.Add(mean, epsilon))
    result = _narrow(b, b.Mul(b.Div(summed, root), _wide(b, 2)))
    return b.done(result, b.Identity(mean), b.Reciprocal(root), _narrow(b, summed))


def _summed(b: BodyBuilder, bias: int) -> NodeEntry:
    """The sum of the first two inputs and a bias, in float32 for 16-bit floats: the square of 300 overflows float16."""
    total = b.Add(_wide(b, 0), _wide(b, 1))
    return b.Add(total, _wide(b, bias)) if b.has(bias) else total


def _wide(b: BodyBuilder, i: int) -> NodeEntry:
    """An input, cast to float32 if it is a 16-bit float."""
    return b.Cast(b.input(i), to="float32") if b.type(i).dtype in HALVES else b.input(i)


def _narrow(b: BodyBuilder, x: NodeEntry) -> NodeEntry:
    """A result, cast to the first input's type if that is a 16-bit float."""
    return b.Cast(x, to=b.type(0).dtype) if b.type(0).dtype in HALVES else x


@meaning("EmbedLayerNormalization", 17, "epsilon mask_index_type")
def embed_layer_norm(b: BodyBuilder) -> Graph:
    """EmbedLayerNormalization: the layer norm of the sum of the embeddings of words, positions and segments.

    The second output is the number of unmasked words in each row."""
    summed = b.Gather(b.input(2), b.input(0))
    if b.has(8):
        positions = b.Gather(b.input(3), b.input(8))
    else:
        length = b.Gather(b.Shape(b.input(0)), [1])
        positions = b.Slice(b.input(3), [0], length, [0])
    summed = b.Add(summed, positions)
    if b.has(4):
        summed = b.Add(summed, b.Gather(b.input(4), b.input(1)))
    count = len(b.node.output_names)
    normed = b.LayerNormalization(summed, b.input(5), b.input(6), epsilon=float(b.attr("epsilon", 1e-12)))
    if count == 1:
        return b.done(normed)
    if b.has(7):
        words = b.ReduceSum(b.Cast(b.input(7), to="int32"), [1], keepdims=0)
    else:
        rows = b.Gather(b.Shape(b.input(0)), [0])
        words = b.Expand(b.constant(0, np.int32), rows)
    return b.done(normed, words, summed)
