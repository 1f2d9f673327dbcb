"""Ops that pick, join, convert or rotate elements."""

from __future__ import annotations

import numpy as np

from partita.graph.body_builder import BodyBuilder
from partita.graph.build import FUSED
from partita.graph.graph import Graph
from partita.graph.microsoft.grouped import rotated
from partita.graph.node import Node
from partita.graph.types import HALVES, TensorType

SORTED_AS = {
    "float16": "float64", "bfloat16": "float64", "float32": "float64", "int16": "int32", "uint16": "int32", "uint32": "int64",
}
"""The type to which elements are cast for sorting, by element type."""


def top_k(b: BodyBuilder) -> Graph | None:
    """TopK of floats is sorted in float64, with NaN as infinity and infinity as 1e300, since TVM's sort takes NaN for equal to
    any number. Narrow integers, which TVM does not sort, are widened."""
    x, dtype = b.input(0), b.type(0).dtype
    sorted_as = SORTED_AS.get(dtype)
    if sorted_as is None:
        return None
    wide = b.Cast(x, to=sorted_as)
    if sorted_as == "float64":
        nan = b.IsNaN(b.Cast(x, to="float32") if dtype in HALVES else x)
        finite = b.Min(wide, b.constant(1e300, np.float64))
        wide = b.Where(nan, b.constant(np.inf, np.float64), finite)
    _, indices = b.ops("TopK", 2, wide, b.input(1), **b.node.attrs)
    return b.done(b.GatherElements(x, indices, axis=int(b.attr("axis", -1))), indices)


def hardmax(b: BodyBuilder) -> Graph | None:
    """Hardmax along the last axis, between transposes that swap it with the node's axis."""
    rank = b.rank(0)
    if not rank:
        return None
    perm, axis = list(range(rank)), int(b.attr("axis", -1)) % rank
    perm[axis], perm[-1] = perm[-1], perm[axis]
    return b.done(b.Transpose(b.Hardmax(b.Transpose(b.input(0), perm=perm), axis=-1), perm=perm))


def is_one_hot(node: Node, version: int) -> bool:
    """True for a OneHot with a constant number of classes and two values."""
    depth = node.inputs[1] if node.op == "OneHot" and not node.domain and version >= 16 else None
    values = node.inputs[2].type if depth is not None and node.inputs[2] is not None else None
    count = values.shape[0] if isinstance(values, TensorType) and values.shape else None
    return depth is not None and depth.node.value is not None and (count == 2 or not isinstance(count, int))


def one_hot(b: BodyBuilder) -> Graph | None:
    """OneHot as a comparison with the class numbers, since TVM's own turns float32 into float64. Negative indices count from the
    end; those out of range match no class."""
    if not is_one_hot(b.node, b.version):
        return None
    rank, count = b.rank(0), int(b.value(1).item())
    axis = int(b.attr("axis", -1)) % (rank + 1)
    spread = b.Unsqueeze(b.Cast(b.input(0), to="int64"), [axis])
    classes = b.constant(np.arange(count).reshape(-1, *[1] * (rank - axis)))
    counted = b.Where(b.Less(spread, 0), b.Add(spread, count), spread)
    off, on = (b.Gather(b.input(2), i) if b.values[2] is None else b.value(2)[i] for i in (0, 1))
    return b.done(b.Where(b.Equal(counted, classes), on, off))


def concat(b: BodyBuilder) -> Graph | None:
    """A Concat without its empty inputs, such as a decoder's first cache."""
    types = list(b.types)
    full = [i for i, kind in enumerate(types) if not isinstance(kind, TensorType) or kind.shape is None or 0 not in kind.shape]
    joined = [b.input(i) for i in full if b.has(i)]
    if not joined or len(joined) == len(types):
        return None
    return b.done(b.Concat(*joined, axis=int(b.attr("axis", 1))) if len(joined) > 1 else b.Identity(*joined))


def grid_sample(b: BodyBuilder) -> Graph | None:
    """Nearest GridSample, with NaN for NaN positions, which TVM converts to an arbitrary pixel."""
    x, grid, dtype = b.input(0), b.input(1), b.type(0).dtype
    if FUSED in b.node.metadata or b.attr("mode", None) != "nearest" or "float" not in dtype:
        return None
    of_axes = b.along("ReduceMax", b.Cast(b.IsNaN(grid), to="int32"), [b.rank(1) - 1], keepdims=0)
    is_nan = b.Cast(of_axes, to="bool")
    sampled = b.GridSample(x, grid, **b.node.attrs)
    return b.done(b.Where(b.Unsqueeze(is_nan, [1]), b.like(0, np.nan), sampled))


def shrink(b: BodyBuilder) -> Graph | None:
    """Shrink of integers in float64: its bias and its threshold need not be integers."""
    dtype = b.type(0).dtype
    if "int" not in dtype:
        return None
    return b.done(b.Cast(b.Shrink(b.Cast(b.input(0), to="float64"), **b.node.attrs), to=dtype))


def cast_like(b: BodyBuilder) -> Graph:
    """CastLike as a Cast."""
    return b.done(b.Cast(b.input(0), to=b.type(1).dtype))


def rotary_embedding(b: BodyBuilder) -> Graph | None:
    """RotaryEmbedding as products, like onnxruntime's. None if the size of a head is dynamic. ONNX's own function computes sizes
    at run time, which no device here supports."""
    shape, heads, x = b.type(0).shape, int(b.attr("num_heads", 0)), b.input(0)
    if shape is None or len(shape) not in (3, 4) or not isinstance(shape[-1], int) or (len(shape) == 3 and not heads):
        return None
    is_flat = len(shape) == 3
    depth = shape[-1] // heads if is_flat else shape[-1]
    if is_flat:
        x = b.Transpose(b.Reshape(x, [0, 0, heads, depth]), perm=[0, 2, 1, 3])
    turning = int(b.attr("rotary_embedding_dim", 0)) or depth
    y = rotated(b, x, b.optional(3), (1, 2), turning, depth, bool(b.attr("interleaved", 0)))
    return b.done(b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, shape[-1]]) if is_flat else y)
