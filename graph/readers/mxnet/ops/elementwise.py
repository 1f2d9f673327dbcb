"""Element-wise ops of one input, of two, and of an input and a number; activations, casts and ops that change nothing in use.

MXNet's comparisons and logical ops return ones and zeros in the dtype of their inputs instead of booleans."""

from __future__ import annotations

import math
from collections.abc import Callable

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.attributes import Attributes
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.table import Known, Shape, converter, dtype, number, one_op, register, size_along

# -- one input -------------------------------------------------------------------------------------------

SAME_MEANING = {
    "abs": "Abs", "arccos": "Acos", "arccosh": "Acosh", "arcsin": "Asin", "arcsinh": "Asinh", "arctan": "Atan",
    "arctanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "log": "Log", "negative": "Neg", "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign",
    "sin": "Sin", "sinh": "Sinh", "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}
"""MXNet's ops that have an equivalent in ONNX."""

for _name, _op in SAME_MEANING.items():
    one_op(_name, _op)


def _signed(c: Conversion, op: str, magnitude: NodeEntry) -> NodeEntry:
    """The op of the data's sign and the magnitude."""
    return c.result(op, c.Sign(c.data, name="sign"), magnitude)


def _cube_root(c: Conversion) -> NodeEntry:
    """The cube root of the magnitude."""
    return c.Pow(c.Abs(c.data, name="size"), c.like("third", 1 / 3, c.data), name="root")


def _half_up(c: Conversion) -> NodeEntry:
    """The magnitude's nearest integer; ties are rounded up."""
    return c.Floor(c.Add(c.Abs(c.data, name="size"), c.like("half", 0.5, c.data), name="raised"), name="whole")


register("square", lambda c: c.result("Mul", c.data, c.data))
register("rsqrt", lambda c: c.result("Reciprocal", c.Sqrt(c.data, name="root")))
register("degrees", lambda c: c.result("Mul", c.data, c.like("factor", 180 / math.pi, c.data)))
register("radians", lambda c: c.result("Mul", c.data, c.like("factor", math.pi / 180, c.data)))
register("log2", lambda c: c.result("Div", c.Log(c.data, name="natural"), c.like("base", math.log(2), c.data)))
register("log10", lambda c: c.result("Div", c.Log(c.data, name="natural"), c.like("base", math.log(10), c.data)))
register("log1p", lambda c: c.result("Log", c.Add(c.data, c.like("one", 1, c.data), name="plus_one")), onnx="Log")
register("expm1", lambda c: c.result("Sub", c.Exp(c.data, name="exp"), c.like("one", 1, c.data)), onnx="Exp")
register("rint", lambda c: c.result("Ceil", c.Sub(c.data, c.like("half", 0.5, c.data), name="lower")))  # ties are rounded down
register("round", lambda c: _signed(c, "Mul", _half_up(c)))
register("fix trunc", lambda c: _signed(c, "Mul", c.Floor(c.Abs(c.data, name="size"), name="whole")))
register("cbrt", lambda c: _signed(c, "Mul", _cube_root(c)))
register("rcbrt", lambda c: _signed(c, "Div", _cube_root(c)))
register(
    "logical_not", lambda c: c.result("Cast", c.Equal(c.data, c.like("zero", 0, c.data), name="is_zero"), to=c.dtype(c.data))
)
one_op("Cast cast amp_cast", "Cast", to=dtype("dtype"))


@converter("clip", "a_min a_max", onnx="Clip")
def clip(c: Conversion) -> NodeEntry:
    low, high = (c.params.number(name) for name in ("a_min", "a_max"))
    return c.result("Clip", c.data, c.like("min", low, c.data), c.like("max", high, c.data))


@converter("smooth_l1", "scalar is_int")
def smooth_l1(c: Conversion) -> NodeEntry:
    """A parabola around zero, straight lines beyond."""
    data, sigma = c.data, c.params.scalar("scalar", 1.0)
    if sigma == 0:
        c.params.fail("scalar", "other than 0")
    size = c.Abs(data, name="size")
    inside = c.Less(size, c.like("border", 1 / sigma**2, data), name="inside")
    parabola = c.Mul(c.Mul(data, data, name="squares"), c.like("scale", sigma**2 / 2, data), name="parabola")
    return c.result("Where", inside, parabola, c.Sub(size, c.like("offset", 0.5 / sigma**2, data), name="line"))


# -- two inputs, or one and a number ---------------------------------------------------------------------

Binary = Callable[[Conversion, NodeEntry, NodeEntry], NodeEntry]
"""The result for two operands."""


def _binary(meaning: str | Binary, ops: str, on_right: str, on_left: str = "", onnx: str = "") -> None:
    """Adds rows of a binary op: an op of ONNX's, or a function. `ops` are MXNet's names with two inputs, `on_right` and
    `on_left` those with a number in place of one of them."""

    def result(c: Conversion, a: NodeEntry, b: NodeEntry) -> NodeEntry:
        return c.result(meaning, a, b) if isinstance(meaning, str) else meaning(c, a, b)

    onnx = meaning if isinstance(meaning, str) else onnx
    register(ops, lambda c: result(c, *c.inputs), inputs=2, onnx=onnx)
    register(on_right, lambda c: result(c, c.data, _scalar(c)), "scalar is_int", onnx=onnx)
    register(on_left, lambda c: result(c, _scalar(c), c.data), "scalar is_int", onnx=onnx)


def _scalar(c: Conversion) -> NodeEntry:
    """The number in the input's dtype, truncated for integers as in MXNet."""
    value = c.params.number("scalar", 1.0)
    return c.like("scalar", value if c.is_float(c.data) else int(value), c.data)


def _mod(c: Conversion, a: NodeEntry, b: NodeEntry) -> NodeEntry:
    """The remainder of a divided by b, with the sign of b; zero where b is zero."""
    if c.is_float(a):
        times = c.Floor(c.Div(a, b, name="quotient"), name="times")
        rest = c.Sub(a, c.Mul(times, b, name="whole"), name="rest")
    else:
        one = c.like("one", 1, b)
        divisor = c.Where(c.Equal(b, c.like("none", 0, b), name="no_divisor"), one, b, name="divisor")
        rest = c.Mod(a, divisor, name="rest")
    zero = c.like("zero", 0, a)
    return c.result("Where", c.Equal(b, zero, name="by_zero"), zero, rest)


def _hypot(c: Conversion, a: NodeEntry, b: NodeEntry) -> NodeEntry:
    return c.result("Sqrt", c.Add(c.Mul(a, a, name="left"), c.Mul(b, b, name="right"), name="squares"))


def _compared(op: str, is_negated: bool = False) -> Binary:
    """ONNX's comparison, cast to the operands' dtype."""

    def result(c: Conversion, a: NodeEntry, b: NodeEntry) -> NodeEntry:
        truth = c.op(op, a, b, name="truth")
        return c.result("Cast", c.Not(truth, name="otherwise") if is_negated else truth, to=c.dtype(a))

    return result


def _logical(op: str) -> Binary:
    """ONNX's logical op of the operands as booleans, cast to the operands' dtype."""

    def result(c: Conversion, a: NodeEntry, b: NodeEntry) -> NodeEntry:
        return c.result("Cast", c.op(op, c.cast("left", a, "bool"), c.cast("right", b, "bool"), name="truth"), to=c.dtype(a))

    return result


_binary("Add", "elemwise_add broadcast_add broadcast_plus _plus _Plus _add _grad_add",
        "_plus_scalar _PlusScalar _scatter_plus_scalar")
_binary("Sub", "elemwise_sub broadcast_sub broadcast_minus _minus _Minus _sub",
        "_minus_scalar _MinusScalar _scatter_minus_scalar", "_rminus_scalar _RMinusScalar")
_binary("Mul", "elemwise_mul broadcast_mul _mul _Mul", "_mul_scalar _MulScalar")
_binary("Div", "elemwise_div broadcast_div _div _Div", "_div_scalar _DivScalar", "_rdiv_scalar _RDivScalar")
_binary("Pow", "broadcast_power _power _Power pow", "_power_scalar _PowerScalar", "_rpower_scalar _RPowerScalar")
_binary("Max", "broadcast_maximum _maximum _Maximum", "_maximum_scalar _MaximumScalar")
_binary("Min", "broadcast_minimum _minimum _Minimum", "_minimum_scalar _MinimumScalar")
_binary(_mod, "broadcast_mod _mod _Mod", "_mod_scalar _ModScalar", "_rmod_scalar _RModScalar")
_binary(_hypot, "broadcast_hypot _hypot _Hypot", "_hypot_scalar _HypotScalar")
_binary(_compared("Equal"), "broadcast_equal _equal _Equal", "_equal_scalar _EqualScalar", onnx="Equal")
_binary(_compared("Equal", is_negated=True), "broadcast_not_equal _not_equal _Not_Equal", "_not_equal_scalar _NotEqualScalar")
_binary(_compared("Greater"), "broadcast_greater _greater _Greater", "_greater_scalar _GreaterScalar", onnx="Greater")
_binary(_compared("GreaterOrEqual"), "broadcast_greater_equal _greater_equal _Greater_Equal",
        "_greater_equal_scalar _GreaterEqualScalar", onnx="GreaterOrEqual")
_binary(_compared("Less"), "broadcast_lesser _lesser _Lesser", "_lesser_scalar _LesserScalar", onnx="Less")
_binary(_compared("LessOrEqual"), "broadcast_lesser_equal _lesser_equal _Lesser_Equal",
        "_lesser_equal_scalar _LesserEqualScalar", onnx="LessOrEqual")
_binary(_logical("And"), "broadcast_logical_and _logical_and _Logical_And", "_logical_and_scalar _LogicalAndScalar", onnx="And")
_binary(_logical("Or"), "broadcast_logical_or _logical_or _Logical_Or", "_logical_or_scalar _LogicalOrScalar", onnx="Or")
_binary(_logical("Xor"), "broadcast_logical_xor _logical_xor _Logical_Xor", "_logical_xor_scalar _LogicalXorScalar", onnx="Xor")


# -- several inputs --------------------------------------------------------------------------------------

one_op("add_n ElementWiseSum", "Sum", inputs=(1, None))


@converter("where", inputs=3, onnx="Where")
def where(c: Conversion) -> NodeEntry:
    condition, yes, no = c.inputs
    truth = c.cast("truth", condition, "bool")
    if c.rank(condition) == 1 and c.rank(yes) > 1:  # a condition for each row
        truth = c.Unsqueeze(truth, c.integers("row_axes", range(1, c.rank(yes))), name="rows")
    return c.result("Where", truth, yes, no)


@converter("amp_multicast", "num_outputs cast_narrow", inputs=(1, None), onnx="Cast")
def amp_multicast(c: Conversion) -> tuple[NodeEntry, ...]:
    """All inputs cast to the widest of their dtypes, or the narrowest."""
    order = ["float16", "float32", "float64"]
    dtypes = [c.dtype(entry) for entry in c.inputs]
    if not set(dtypes) <= set(order) or c.params.integer("num_outputs") != len(dtypes):
        c.fail(f"inputs of {', '.join(dtypes)} cannot be brought to one dtype")
    choose = min if c.params.boolean("cast_narrow") else max
    to = choose(dtypes, key=order.index)
    first = c.result("Cast", c.data, to=to)
    return (first, *(c.extra(i, "Cast", entry, to=to) for i, entry in enumerate(c.inputs[1:], 1)))


# -- activations -----------------------------------------------------------------------------------------

one_op("hard_sigmoid", "HardSigmoid", alpha=number("alpha", 0.2), beta=number("beta", 0.5))

ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus", "softsign": "Softsign"}


@converter("Activation", "act_type", onnx=" ".join(ACTIVATIONS.values()))
def activation(c: Conversion) -> NodeEntry:
    return c.result(ACTIVATIONS[c.params.choice("act_type", tuple(ACTIVATIONS))], c.data)


def _of_leaky_relu(params: Attributes, known: Known) -> list[Shape | None]:
    # One slope for all channels is allowed too.
    return [] if known(1) is not None else [None, (size_along(known(0), 1),)]


@converter(
    "LeakyReLU", "act_type slope lower_bound upper_bound", inputs=(1, 2), implied=_of_leaky_relu,
    onnx="LeakyRelu PRelu Elu Selu Gelu",
)
def leaky_relu(c: Conversion) -> NodeEntry:
    kind = c.params.choice("act_type", ("leaky", "prelu", "elu", "selu", "gelu", "rrelu"), "leaky")
    slope = c.params.number("slope", 0.25)
    if (kind == "prelu") != (len(c.inputs) == 2):
        c.fail(f"act_type is {kind}, and the op has {len(c.inputs)} inputs")
    if kind == "prelu":
        return c.result("PRelu", c.data, _slopes(c))
    if kind == "elu":
        return c.result("Elu", c.data, alpha=slope)
    if kind in ("selu", "gelu"):
        return c.result(kind.capitalize(), c.data)
    if kind == "rrelu":  # in inference the mean of the slopes that training draws
        slope = (c.params.number("lower_bound", 0.125) + c.params.number("upper_bound", 0.334)) / 2
    return c.result("LeakyRelu", c.data, alpha=slope)


def _slopes(c: Conversion) -> NodeEntry:
    """The slopes, one per channel, reshaped to broadcast along axis 1."""
    data, gamma = c.inputs
    if c.volume(gamma) == 1 or c.rank(gamma) != 1 or c.rank(data) <= 2:
        return gamma
    return c.Reshape(gamma, c.integers("slopes_shape", [-1] + [1] * (c.rank(data) - 2)), name="slopes")


# -- no change -------------------------------------------------------------------------------------------


def passed_on(c: Conversion) -> NodeEntry:
    """The first input unchanged; the label that a loss reads is not an input in inference."""
    return c.result("Identity", c.data)


register("identity _copy BlockGrad stop_gradient _CrossDeviceCopy", passed_on, onnx="Identity")
register("_identity_with_attr_like_rhs", passed_on, inputs=2)
register("_contrib_gradientmultiplier", passed_on, "scalar is_int")
register("LinearRegressionOutput MAERegressionOutput", passed_on, inputs=(1, 2), labels=(1,))
register("SVMOutput", passed_on, "margin regularization_coefficient use_linear", inputs=(1, 2), labels=(1,))
register("MakeLoss make_loss", passed_on, "valid_thresh normalization")
register("IdentityAttachKLSparseReg", passed_on, "sparseness_target penalty")
one_op("LogisticRegressionOutput", "Sigmoid", inputs=(1, 2), labels=(1,))


@converter("Dropout", "p mode axes", onnx="Dropout")
def dropout(c: Conversion) -> NodeEntry:
    if c.params.choice("mode", ("training", "always"), "training") == "training":
        return c.result("Dropout", c.data)
    if c.params.integers("axes"):
        c.params.fail("axes", "empty, for a Dropout that is always on")
    return c.result("Dropout", c.data, c.like("p", c.params.number("p", 0.5), c.data), c.constant("always", True, "bool"))
