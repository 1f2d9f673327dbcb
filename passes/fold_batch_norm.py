"""FoldBatchNorm: folds a batch norm at inference into the weights of the op before it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from partita.graph.graph import Graph
from partita.graph.mapped_arrays import new_array
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import Array, TensorType
from partita.passes.bodies import control_targets, everywhere
from partita.passes.constants import Namer, as_constant, made_constant
from partita.passes.registry import REQUESTS, register_pass


@attrs.frozen(slots=True)
class _Fold:
    """One op and the batch norm after it."""

    op: Node
    """The convolution, or Gemm."""
    norm: Node
    """The batch norm, its only reader."""
    weight: Array
    """The op's weights, scaled."""
    bias: Array
    """The op's bias, scaled and shifted."""


@register_pass("FoldBatchNorm", keeps=("shape", "dtype", *REQUESTS))
def fold_batch_norm(g: Graph, *, scale_weights: bool = True) -> Graph:
    """Conv, ConvTranspose, Gemm or MatMul with constant weights and a BatchNormalization as only reader become one op.

    The op's name and the batch norm's value name are kept. New weights are computed in float64. Without `scale_weights` they
    are the old ones: the graph then has the right ops and types without extra memory, but must not be run. Linear."""
    namer = Namer(g)
    return everywhere(g, lambda body: _fold_all(body, namer, scale_weights))


def _fold_all(g: Graph, namer: Namer, scale_weights: bool) -> Graph:
    norms_of = [node for node in g.nodes if node.op == "BatchNormalization"]
    folds = [fold for node in norms_of if (fold := _fold(node, g, scale_weights)) is not None]
    if not folds:
        return g
    pinned = control_targets(g)
    folds = [f for f in folds if not ({f.op, f.norm} & pinned)]
    by_op = {fold.op: fold for fold in folds}
    norms = {fold.norm for fold in folds}

    def visit(node: Node, rewriter: Rewriter) -> None:
        fold = by_op.get(node)
        if fold is not None:
            folded = rewriter.keep(node, _folded(rewriter.rebuilt(node), fold, namer))
            rewriter.replace(fold.norm[0], folded[0])
        elif node not in norms:
            rewriter.keep(node)

    return rewrite(g, visit)


def _fold(norm: Node, g: Graph, scale_weights: bool) -> _Fold | None:
    """The scaled weights that absorb the batch norm; None if that is impossible."""
    x = norm.inputs[0]
    if x is None or not is_inference(norm, g) or norm.after or not is_only_reader(x, g):
        return None
    op = x.node
    moved = scale_and_shift(norm)
    weight = as_constant(op.inputs[1]) if len(op.inputs) > 1 else None
    if moved is None or weight is None or op.domain or op.after or op.affinity != norm.affinity:
        return None
    scale, shift = moved
    bias = as_constant(op.inputs[2]) if len(op.inputs) > 2 else None
    if len(op.inputs) > 2 and op.inputs[2] is not None and bias is None:
        return None
    if op.op in ops("convolution"):
        factors = convolution_factors(op, weight, bias, scale, shift)
    elif op.op in ops("matmul") and g.opset >= 7:
        factors = _gemm_factors(op, weight, bias, scale, shift)
    else:
        return None
    if factors is None or not factors.are_finite(weight):
        return None
    return _Fold(op, norm, factors.scaled(weight) if scale_weights else weight, factors.bias)


def is_inference(norm: Node, g: Graph) -> bool:
    """True if it uses the given mean and variance, per channel, and has no other outputs."""
    version = g.opset
    if norm.domain or any(norm.output_names[1:]) or len(norm.inputs) < 5:
        return False
    if version < 7 and not norm.attrs.get("is_test", 0):
        return False
    return not norm.attrs.get("training_mode", 0) and norm.attrs.get("spatial", 1) == 1


def is_only_reader(entry: NodeEntry, g: Graph) -> bool:
    index = g.index
    number = index.number.get(entry.node)
    return number is not None and len(index.consumers[number]) == 1 and entry not in g.outputs


def scale_and_shift(norm: Node) -> tuple[Array, Array] | None:
    """The batch norm as y = x·scale + shift, in float64."""
    parts = [as_constant(entry) for entry in norm.inputs[1:5]]
    if any(part is None for part in parts):
        return None
    gamma, beta, mean, variance = (np.asarray(part, np.float64) for part in parts)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + norm.attrs.get("epsilon", 1e-5))
        return scale, beta - mean * scale


@attrs.frozen(slots=True)
class Factors:
    """Scale factors of an op's weights, and its new bias."""

    by_channel: Array
    """In float64, with the rank of the weights."""
    bias: Array
    """Scaled and shifted, in the type of the weights."""

    def are_finite(self, weight: Array) -> bool:
        """True if the bias and all scaled weights are finite. Checks only the largest and smallest weight of each channel."""
        same = tuple([axis for axis, size in enumerate(self.by_channel.shape) if size == 1])
        with np.errstate(invalid="ignore"):
            ends = [end(weight, axis=same, keepdims=True, initial=0) for end in (np.max, np.min)]
        return all(np.isfinite(part).all() for part in (self.bias, *map(self.scaled, ends)))

    def scaled(self, weight: Array) -> Array:
        """The products in float64, rounded once to the weight's type, without a copy of the whole in float64."""
        scaled = new_array(weight.shape, weight.dtype)
        with np.errstate(all="ignore"):
            np.multiply(weight, self.by_channel, out=scaled, dtype=np.float64, casting="same_kind")
        return scaled


def convolution_factors(op: Node, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Factors | None:
    """Output channels are axis 0 of a convolution's weights; of a transposed one axis 1, within each group."""
    groups = op.attrs.get("group", 1)
    if op.op == "Conv":
        channels = weight.shape[0]
        factors = scale
    else:
        channels = weight.shape[1] * groups
        if weight.shape[0] % groups or scale.size != channels:
            return None
        factors = np.repeat(scale.reshape(groups, -1), weight.shape[0] // groups, axis=0)
    if scale.size != channels or (bias is not None and bias.size != channels):
        return None
    moved = shift if bias is None else bias * scale + shift
    by_channel = factors.reshape(factors.shape + (1,) * (weight.ndim - factors.ndim))
    return Factors(by_channel, moved.astype(weight.dtype))


def _gemm_factors(op: Node, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Factors | None:
    """The columns of the product are the channels; the bias is scaled such that it is beta·C again."""
    x = op.inputs[0]
    if op.op == "MatMul" and (x is None or not isinstance(x.type, TensorType) or x.type.rank != 2):
        return None
    transposed = bool(op.attrs.get("transB", 0))
    if weight.ndim != 2 or weight.shape[0 if transposed else 1] != scale.size:
        return None
    if bias is not None and bias.ndim and bias.shape[-1] not in (1, scale.size):
        return None
    moved = shift if bias is None else op.attrs.get("beta", 1.0) * bias.astype(np.float64) * scale + shift
    return Factors(scale[:, None] if transposed else scale[None], moved.astype(weight.dtype))


def _folded(op: Node, fold: _Fold, namer: Namer) -> Node:
    """The op with the new weights; a MatMul becomes a Gemm."""
    old_weight = op.inputs[1]
    assert old_weight is not None
    old_bias = op.inputs[2] if len(op.inputs) > 2 else None
    value = fold.norm.output_names[0]
    weight = made_constant(fold.weight, namer(f"{value}_weight"), old_weight.node)
    bias = made_constant(fold.bias, namer(f"{value}_bias"), (old_bias or old_weight).node)
    changes: dict[str, Any] = {}
    if op.op == "MatMul":
        changes["op"] = "Gemm"
    if op.attrs.get("beta", 1.0) != 1.0:
        changes["attrs"] = {name: v for name, v in op.attrs.items() if name != "beta"}
    return op.evolve(
        inputs=(op.inputs[0], weight[0], bias[0]),
        output_names=fold.norm.output_names[:1],
        output_types=fold.norm.output_types[:1],
        **changes,
    )
