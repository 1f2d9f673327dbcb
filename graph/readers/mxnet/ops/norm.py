"""Normalizations in inference mode."""

from __future__ import annotations

import math

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.layout import moved
from partita.graph.readers.mxnet.ops.registry import converter
from partita.graph.readers.mxnet.ops.sizes import shape_of

MOST_GROUPS = 65_536
"""Maximum plausible number of groups of a GroupNorm."""

BATCH_NORM = "eps fix_gamma use_global_stats output_mean_var axis"


@converter("BatchNorm BatchNorm_v1 _contrib_SyncBatchNorm", BATCH_NORM, inputs=5, onnx="BatchNormalization")
def batch_norm(c: Conversion) -> tuple[NodeEntry, ...]:
    data, gamma, beta, mean, variance = c.inputs
    eps = c.params.number("eps", 1e-3)
    if c.params.boolean("fix_gamma", True):
        gamma = _ones(c, gamma, mean)
    statistics = (gamma, beta, mean, variance)
    axis = c.params.integer("axis", 1)
    if axis != 1:
        axis = c.axis(axis, c.rank(data))
    if axis == 1:
        normalized = c.result("BatchNormalization", data, *statistics, epsilon=eps)
    else:
        there, back = moved(c.rank(data), axis, 1), moved(c.rank(data), 1, axis)
        inner = c.BatchNormalization(
            c.transposed(data, there, name="axis_to_1"), *statistics, epsilon=eps, name="norm"
        )
        normalized = c.result("Transpose", inner, perm=back)
    if not c.params.boolean("output_mean_var"):
        return (normalized,)
    shifted = c.Add(variance, c.like("eps", eps, variance), name="shifted")
    inverse = c.extra(2, "Reciprocal", c.Sqrt(shifted, name="deviation"))
    return normalized, c.extra(1, "Identity", mean), inverse


def _ones(c: Conversion, gamma: NodeEntry, mean: NodeEntry) -> NodeEntry:
    """A scale of one, for fix_gamma."""
    for entry in (gamma, mean):
        size = c.volume(entry)
        # Only the size of an existing array: a merely declared size must not cause an allocation.
        if size is not None and entry.node.is_constant:
            return c.like("ones", [1.0] * size, gamma)
    one = c.like("one", 1.0, gamma)
    return c.Expand(one, c.Shape(mean, name="channels"), name="ones")


@converter("LayerNorm", "axis eps output_mean_var", inputs=3, onnx="LayerNormalization")
def layer_norm(c: Conversion) -> tuple[NodeEntry, ...]:
    data, gamma, beta = c.inputs
    eps = c.params.number("eps", 1e-5)
    axis = c.params.integer("axis", -1)
    if axis == -1 or c.axis(axis, c.rank(data)) == c.rank(data) - 1:
        normalized = c.result("LayerNormalization", data, gamma, beta, axis=-1, epsilon=eps)
    else:
        rank, front = c.rank(data), c.axis(axis, c.rank(data))
        last = c.transposed(data, moved(rank, front, rank - 1), name="axis_to_last")
        inner = c.LayerNormalization(last, gamma, beta, axis=-1, epsilon=eps, name="norm")
        normalized = c.result("Transpose", inner, perm=moved(rank, rank - 1, front))
    if not c.params.boolean("output_mean_var"):
        return (normalized,)
    axes = c.integers("axes", [axis])
    return (normalized, *_statistics(c, data, axes, eps))


def _statistics(c: Conversion, data: NodeEntry, axes: NodeEntry, eps: float) -> tuple[NodeEntry, NodeEntry]:
    """Mean and standard deviation, with eps inside the root, as MXNet returns them."""
    mean = c.extra(1, "ReduceMean", data, axes)
    centred = c.Sub(data, mean, name="centred")
    variance = c.ReduceMean(c.Mul(centred, centred, name="squares"), axes, name="variance")
    return mean, c.extra(2, "Sqrt", c.Add(variance, c.like("eps", eps, data), name="shifted"))


@converter("InstanceNorm", "eps", inputs=3, onnx="InstanceNormalization")
def instance_norm(c: Conversion) -> NodeEntry:
    return c.result("InstanceNormalization", *c.inputs, epsilon=c.params.number("eps", 1e-3))


@converter("GroupNorm", "num_groups eps output_mean_var", inputs=3, onnx="InstanceNormalization")
def group_norm(c: Conversion) -> NodeEntry:
    """Converted to InstanceNormalization: the scale of ONNX's GroupNormalization changed, and engines differ."""
    if c.params.boolean("output_mean_var"):
        c.params.fail("output_mean_var", "False")
    data, gamma, beta = c.inputs
    groups, eps = c.params.integer("num_groups", 1, least=1), c.params.number("eps", 1e-5)
    if groups > MOST_GROUPS:
        c.params.fail("num_groups", f"at most {MOST_GROUPS}")
    (scales,) = c.sizes(gamma, (0,))
    grouped = c.Reshape(data, c.integers("groups", [0, groups, -1]), name="grouped")
    whole = shape_of(c, "shape", data)
    if scales == groups:  # a scale per group, as in MXNet 1
        return c.result(
            "Reshape", c.InstanceNormalization(grouped, gamma, beta, epsilon=eps, name="norm"), whole
        )
    neutral = c.like("ones", [1.0] * groups, data), c.like("zeros", [0.0] * groups, data)
    apart = c.InstanceNormalization(grouped, *neutral, epsilon=eps, name="norm")
    column = c.integers("column", [-1] + [1] * (c.rank(data) - 2))
    scaled = c.Mul(
        c.Reshape(apart, whole, name="whole"), c.Reshape(gamma, column, name="gamma"), name="scaled"
    )
    return c.result("Add", scaled, c.Reshape(beta, column, name="beta"))


@converter("L2Normalization", "eps mode")
def l2_normalization(c: Conversion) -> NodeEntry:
    data = c.inputs[0]
    mode = c.params.choice("mode", ("instance", "channel", "spatial"), "instance")
    axes = [1] if mode == "channel" else list(range(1 if mode == "instance" else 2, c.rank(data)))
    squares = c.Mul(data, data, name="squares")
    total = c.ReduceSum(squares, c.integers("axes", axes), name="total")
    shifted = c.Add(total, c.like("eps", c.params.number("eps", 1e-10), data), name="shifted")
    return c.result("Div", data, c.Sqrt(shifted, name="length"))


@converter("LRN", "alpha beta knorm nsize", onnx="LRN")
def lrn(c: Conversion) -> NodeEntry:
    params = c.params
    return c.result(
        "LRN",
        c.inputs[0],
        alpha=params.number("alpha", 1e-4),
        beta=params.number("beta", 0.75),
        bias=params.number("knorm", 2.0),
        size=params.integer("nsize", least=1),
    )


@converter("_contrib_div_sqrt_dim")
def div_sqrt_dim(c: Conversion) -> NodeEntry:
    (size,) = c.sizes(c.inputs[0], (-1,))
    return c.result("Div", c.inputs[0], c.like("root", math.sqrt(size), c.inputs[0]))
