"""Element-wise ops of one input."""

from __future__ import annotations

import math

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter, register

SAME_MEANING = {
    "abs": "Abs", "arccos": "Acos", "arccosh": "Acosh", "arcsin": "Asin", "arcsinh": "Asinh", "arctan": "Atan",
    "arctanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "log": "Log", "negative": "Neg", "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign",
    "sin": "Sin", "sinh": "Sinh", "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}
"""MXNet's ops that have an equivalent in ONNX."""


def _same(c: Conversion) -> NodeEntry:
    return c.result(SAME_MEANING[c.kind], c.inputs[0])


register(" ".join(SAME_MEANING), _same, onnx=SAME_MEANING)


@converter("square")
def square(c: Conversion) -> NodeEntry:
    return c.result("Mul", c.inputs[0], c.inputs[0])


@converter("rsqrt")
def rsqrt(c: Conversion) -> NodeEntry:
    return c.result("Reciprocal", c.Sqrt(c.inputs[0], name="root"))


FACTORS = {"degrees": 180 / math.pi, "radians": math.pi / 180}
LOG_BASES = {"log2": 2.0, "log10": 10.0}


@converter("degrees radians")
def scaled(c: Conversion) -> NodeEntry:
    return c.result("Mul", c.inputs[0], c.like("factor", FACTORS[c.kind], c.inputs[0]))


@converter("log2 log10")
def logarithm(c: Conversion) -> NodeEntry:
    natural = c.Log(c.inputs[0], name="natural")
    return c.result("Div", natural, c.like("base", math.log(LOG_BASES[c.kind]), c.inputs[0]))


@converter("log1p", onnx="Log")
def log1p(c: Conversion) -> NodeEntry:
    return c.result("Log", c.Add(c.inputs[0], c.like("one", 1, c.inputs[0]), name="plus_one"))


@converter("expm1", onnx="Exp")
def expm1(c: Conversion) -> NodeEntry:
    return c.result("Sub", c.Exp(c.inputs[0], name="exp"), c.like("one", 1, c.inputs[0]))


@converter("rint")
def rint(c: Conversion) -> NodeEntry:
    """The nearest integer; ties are rounded down."""
    lower = c.Sub(c.inputs[0], c.like("half", 0.5, c.inputs[0]), name="lower")
    return c.result("Ceil", lower)


@converter("round")
def round_away(c: Conversion) -> NodeEntry:
    """The nearest integer; ties are rounded away from zero."""
    size = c.Abs(c.inputs[0], name="size")
    whole = c.Floor(c.Add(size, c.like("half", 0.5, size), name="raised"), name="whole")
    return c.result("Mul", c.Sign(c.inputs[0], name="sign"), whole)


@converter("fix trunc")
def towards_zero(c: Conversion) -> NodeEntry:
    whole = c.Floor(c.Abs(c.inputs[0], name="size"), name="whole")
    return c.result("Mul", c.Sign(c.inputs[0], name="sign"), whole)


@converter("cbrt rcbrt")
def cube_root(c: Conversion) -> NodeEntry:
    size = c.Abs(c.inputs[0], name="size")
    root = c.Pow(size, c.like("third", 1 / 3, size), name="root")
    sign = c.Sign(c.inputs[0], name="sign")
    return c.result("Mul", sign, root) if c.kind == "cbrt" else c.result("Div", sign, root)


@converter("logical_not")
def logical_not(c: Conversion) -> NodeEntry:
    """1 where the input is zero, else 0, in the input's dtype."""
    data = c.inputs[0]
    return c.result("Cast", c.Equal(data, c.like("zero", 0, data), name="is_zero"), to=c.dtype(data))


@converter("clip", "a_min a_max", onnx="Clip")
def clip(c: Conversion) -> NodeEntry:
    data = c.inputs[0]
    low, high = (c.params.number(name) for name in ("a_min", "a_max"))
    return c.result("Clip", data, c.like("min", low, data), c.like("max", high, data))


@converter("smooth_l1", "scalar is_int")
def smooth_l1(c: Conversion) -> NodeEntry:
    """A parabola around zero, straight lines beyond."""
    data, sigma = c.inputs[0], c.params.scalar("scalar", 1.0)
    if sigma == 0:
        c.params.fail("scalar", "other than 0")
    size = c.Abs(data, name="size")
    inside = c.Less(size, c.like("border", 1 / sigma**2, data), name="inside")
    parabola = c.Mul(c.Mul(data, data, name="squares"), c.like("scale", sigma**2 / 2, data), name="parabola")
    return c.result(
        "Where", inside, parabola, c.Sub(size, c.like("offset", 0.5 / sigma**2, data), name="line")
    )


@converter("Cast cast amp_cast", "dtype", onnx="Cast")
def cast(c: Conversion) -> NodeEntry:
    if "dtype" not in c.params:
        c.params.fail("dtype", "given")
    return c.result("Cast", c.inputs[0], to=c.params.dtype("dtype", "float32"))
