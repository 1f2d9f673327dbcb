"""Activations and softmax."""

from __future__ import annotations

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter
from partita.graph.readers.mxnet.ops.sizes import shape_of

ACTIVATIONS = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softrelu": "Softplus",
    "softsign": "Softsign",
}


@converter("Activation", "act_type", onnx=" ".join(ACTIVATIONS.values()))
def activation(c: Conversion) -> NodeEntry:
    return c.result(ACTIVATIONS[c.params.choice("act_type", tuple(ACTIVATIONS))], c.inputs[0])


@converter("LeakyReLU", "act_type slope lower_bound upper_bound", inputs=(1, 2), onnx="LeakyRelu PRelu Elu Selu Gelu")
def leaky_relu(c: Conversion) -> NodeEntry:
    data, params = c.inputs[0], c.params
    kind = params.choice("act_type", ("leaky", "prelu", "elu", "selu", "gelu", "rrelu"), "leaky")
    slope = params.number("slope", 0.25)
    if (kind == "prelu") != (len(c.inputs) == 2):
        c.fail(f"act_type is {kind}, and the op has {len(c.inputs)} inputs")
    if kind == "prelu":
        return c.result("PRelu", data, _slopes(c))
    if kind == "elu":
        return c.result("Elu", data, alpha=slope)
    if kind in ("selu", "gelu"):
        return c.result(kind.capitalize(), data)
    if kind == "rrelu":  # in inference the mean of the slopes that training draws
        slope = (params.number("lower_bound", 0.125) + params.number("upper_bound", 0.334)) / 2
    return c.result("LeakyRelu", data, alpha=slope)


def _slopes(c: Conversion) -> NodeEntry:
    """The slopes, one per channel, reshaped to broadcast along axis 1."""
    data, gamma = c.inputs
    if c.volume(gamma) == 1 or c.rank(gamma) != 1 or c.rank(data) <= 2:
        return gamma
    shape = c.integers("slopes_shape", [-1] + [1] * (c.rank(data) - 2))
    return c.Reshape(gamma, shape, name="slopes")


@converter("hard_sigmoid", "alpha beta", onnx="HardSigmoid")
def hard_sigmoid(c: Conversion) -> NodeEntry:
    params = c.params
    return c.result(
        "HardSigmoid", c.inputs[0], alpha=params.number("alpha", 0.2), beta=params.number("beta", 0.5)
    )


SOFTMAXES = {"softmax": "Softmax", "softmin": "Softmax", "log_softmax": "LogSoftmax"}


@converter(" ".join(SOFTMAXES), "axis temperature dtype use_length", inputs=(1, 2), onnx=SOFTMAXES)
def softmax(c: Conversion) -> NodeEntry:
    data, params = c.inputs[0], c.params
    axis = params.integer("axis", -1)
    if params.boolean("use_length") != (len(c.inputs) == 2):
        c.fail(f"use_length is {params.boolean('use_length')}, and the op has {len(c.inputs)} inputs")
    if c.kind == "softmin":
        data = c.Neg(data, name="negated")
    if "temperature" in params:
        data = c.Div(data, c.like("temperature", params.number("temperature"), data), name="cooled")
    if "dtype" in params:
        data = c.cast("cast", data, params.dtype("dtype", "float32"))
    op = SOFTMAXES[c.kind]
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
        return c.result("Softmax", c.inputs[0], axis=1)
    return over_all_but_first(c, c.inputs[0])


def over_all_but_first(c: Conversion, data: NodeEntry) -> NodeEntry:
    """The softmax over all axes but the first."""
    if c.rank(data) <= 2:
        return c.result("Softmax", data, axis=-1)
    flat = c.Softmax(c.Flatten(data, name="flat"), axis=-1, name="softmax")
    return c.result("Reshape", flat, shape_of(c, "shape", data))
