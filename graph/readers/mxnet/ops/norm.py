"""Softmax and normalizations, in inference mode."""

from __future__ import annotations

import math
from typing import Any

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.table import converter, integer, number, one_op, vectors_along

# -- softmax ---------------------------------------------------------------------------------------------

SOFTMAXES = {"softmax": "Softmax", "softmin": "Softmax", "log_softmax": "LogSoftmax"}


@converter(" ".join(SOFTMAXES), "axis temperature dtype use_length", inputs=(1, 2), onnx=SOFTMAXES)
def softmax(c: Conversion) -> NodeEntry:
    data, params, op = c.data, c.params, SOFTMAXES[c.kind]
    axis = params.integer("axis", -1)
    if params.boolean("use_length") != (len(c.inputs) == 2):
        c.fail(f"use_length is {params.boolean('use_length')}, and the op has {len(c.inputs)} inputs")
    if c.kind == "softmin":
        data = c.Neg(data, name="negated")
    if "temperature" in params:
        data = c.Div(data, c.like("temperature", params.number("temperature"), data), name="cooled")
    if "dtype" in params:
        data = c.cast("cast", data, params.dtype("dtype"))
    if len(c.inputs) == 1:
        return c.result(op, data, axis=axis)
    mask = _within_length(c, data, c.inputs[1], c.axis(axis, c.rank(data)))
    lowest = c.like("lowest", float("-inf"), data)
    probabilities = c.op(op, c.Where(mask, data, lowest, name="masked"), axis=axis, name="softmax")
    return c.result("Where", mask, probabilities, c.like("zero", 0.0, data))


def _within_length(c: Conversion, data: NodeEntry, length: NodeEntry, axis: int) -> NodeEntry:
    """Mask of the positions along the axis that are below the length."""
    (size,) = c.sizes(data, (axis,))
    count = c.constant("size", size, "int64")
    steps = c.Range(c.constant("start", 0, "int64"), count, c.constant("step", 1, "int64"), name="steps")
    shape = c.integers("steps_shape", [-1] + [1] * (c.rank(data) - axis - 1))
    column = c.Unsqueeze(c.cast("length", length, "int64"), c.integers("axis", [axis]), name="column")
    return c.Less(c.Reshape(steps, shape, name="positions"), column, name="mask")


@converter("SoftmaxActivation", "mode", onnx="Softmax")
def softmax_activation(c: Conversion) -> NodeEntry:
    if c.params.choice("mode", ("instance", "channel"), "instance") == "channel":
        return c.result("Softmax", c.data, axis=1)
    return _over_all_but_first(c)


@converter(
    "SoftmaxOutput Softmax", "ignore_label multi_output use_ignore preserve_shape normalization out_grad smooth_alpha",
    inputs=(1, 2), labels=(1,), onnx="Softmax",
)
def softmax_output(c: Conversion) -> NodeEntry:
    if c.params.boolean("multi_output"):
        return c.result("Softmax", c.data, axis=1)
    if c.params.boolean("preserve_shape"):
        return c.result("Softmax", c.data, axis=-1)
    return _over_all_but_first(c)


def _over_all_but_first(c: Conversion) -> NodeEntry:
    """The softmax over all axes but the first."""
    if c.rank(c.data) <= 2:
        return c.result("Softmax", c.data, axis=-1)
    flat = c.Softmax(c.Flatten(c.data, name="flat"), axis=-1, name="softmax")
    return c.result("Reshape", flat, c.shape_of("shape", c.data))


# -- normalizations --------------------------------------------------------------------------------------

one_op("InstanceNorm", "InstanceNormalization", inputs=3, implied=vectors_along(1), epsilon=number("eps", 1e-3))
one_op(
    "LRN", "LRN",
    alpha=number("alpha", 1e-4), beta=number("beta", 0.75), bias=number("knorm", 2.0), size=integer("nsize", least=1),
)

MOST_GROUPS = 65_536
"""Maximum plausible number of groups of a GroupNorm."""


def _along(c: Conversion, op: str, at: int, target: int, *inputs: NodeEntry, **attrs: Any) -> NodeEntry:
    """The MXNet node's value: the op, which normalizes along `target`, of the data with axis `at` moved there and back."""
    if at == target:
        return c.result(op, c.data, *inputs, **attrs)
    rank = c.rank(c.data)
    target, name = target % rank, "axis_to_last" if target == -1 else f"axis_to_{target}"
    inner = c.op(op, c.transposed(c.data, moved(rank, at, target), name=name), *inputs, **attrs, name="norm")
    return c.result("Transpose", inner, perm=moved(rank, target, at))


def moved(rank: int, source: int, target: int) -> list[int]:
    """The permutation that moves one axis from `source` to `target` and keeps the order of the others."""
    order = [axis for axis in range(rank) if axis != source]
    return [*order[:target], source, *order[target:]]


@converter(
    "BatchNorm BatchNorm_v1 _contrib_SyncBatchNorm", "eps fix_gamma use_global_stats output_mean_var axis",
    inputs=5, onnx="BatchNormalization", implied=vectors_along(1),
)
def batch_norm(c: Conversion) -> tuple[NodeEntry, ...]:
    data, gamma, beta, mean, variance = c.inputs
    eps = c.params.number("eps", 1e-3)
    if c.params.boolean("fix_gamma", True):
        gamma = _ones(c, gamma, mean)
    axis = c.params.integer("axis", 1)
    if axis != 1:
        axis = c.axis(axis, c.rank(data))
    normalized = _along(c, "BatchNormalization", axis, 1, gamma, beta, mean, variance, epsilon=eps)
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


@converter("LayerNorm", "axis eps output_mean_var", inputs=3, onnx="LayerNormalization", implied=vectors_along(-1))
def layer_norm(c: Conversion) -> tuple[NodeEntry, ...]:
    data, gamma, beta = c.inputs
    eps, axis = c.params.number("eps", 1e-5), c.params.integer("axis", -1)
    is_last = axis == -1 or c.axis(axis, c.rank(data)) == c.rank(data) - 1
    front = -1 if is_last else c.axis(axis, c.rank(data))
    normalized = _along(c, "LayerNormalization", front, -1, gamma, beta, axis=-1, epsilon=eps)
    if not c.params.boolean("output_mean_var"):
        return (normalized,)
    # Mean and standard deviation, with eps inside the root, as MXNet returns them.
    axes = c.integers("axes", [axis])
    mean = c.extra(1, "ReduceMean", data, axes)
    centred = c.Sub(data, mean, name="centred")
    variance = c.ReduceMean(c.Mul(centred, centred, name="squares"), axes, name="variance")
    return normalized, mean, c.extra(2, "Sqrt", c.Add(variance, c.like("eps", eps, data), name="shifted"))


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
    whole = c.shape_of("shape", data)
    if scales == groups:  # a scale per group, as in MXNet 1
        return c.result("Reshape", c.InstanceNormalization(grouped, gamma, beta, epsilon=eps, name="norm"), whole)
    neutral = c.like("ones", [1.0] * groups, data), c.like("zeros", [0.0] * groups, data)
    apart = c.InstanceNormalization(grouped, *neutral, epsilon=eps, name="norm")
    column = c.integers("column", [-1] + [1] * (c.rank(data) - 2))
    scaled = c.Mul(c.Reshape(apart, whole, name="whole"), c.Reshape(gamma, column, name="gamma"), name="scaled")
    return c.result("Add", scaled, c.Reshape(beta, column, name="beta"))


@converter("L2Normalization", "eps mode")
def l2_normalization(c: Conversion) -> NodeEntry:
    mode = c.params.choice("mode", ("instance", "channel", "spatial"), "instance")
    axes = [1] if mode == "channel" else list(range(1 if mode == "instance" else 2, c.rank(c.data)))
    squares = c.Mul(c.data, c.data, name="squares")
    total = c.ReduceSum(squares, c.integers("axes", axes), name="total")
    shifted = c.Add(total, c.like("eps", c.params.number("eps", 1e-10), c.data), name="shifted")
    return c.result("Div", c.data, c.Sqrt(shifted, name="length"))


@converter("_contrib_div_sqrt_dim")
def div_sqrt_dim(c: Conversion) -> NodeEntry:
    (size,) = c.sizes(c.data, (-1,))
    return c.result("Div", c.data, c.like("root", math.sqrt(size), c.data))
