"""Element-wise ops of an input and a number, which is converted to the input's dtype."""

from __future__ import annotations

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.binary import arithmetic, onnx_of
from partita.graph.readers.mxnet.ops.registry import register

SPELLINGS = {
    "add": "_plus_scalar _PlusScalar _scatter_plus_scalar",
    "sub": "_minus_scalar _MinusScalar _scatter_minus_scalar",
    "mul": "_mul_scalar _MulScalar",
    "div": "_div_scalar _DivScalar",
    "mod": "_mod_scalar _ModScalar",
    "power": "_power_scalar _PowerScalar",
    "maximum": "_maximum_scalar _MaximumScalar",
    "minimum": "_minimum_scalar _MinimumScalar",
    "hypot": "_hypot_scalar _HypotScalar",
    "equal": "_equal_scalar _EqualScalar",
    "not_equal": "_not_equal_scalar _NotEqualScalar",
    "greater": "_greater_scalar _GreaterScalar",
    "greater_equal": "_greater_equal_scalar _GreaterEqualScalar",
    "lesser": "_lesser_scalar _LesserScalar",
    "lesser_equal": "_lesser_equal_scalar _LesserEqualScalar",
    "logical_and": "_logical_and_scalar _LogicalAndScalar",
    "logical_or": "_logical_or_scalar _LogicalOrScalar",
    "logical_xor": "_logical_xor_scalar _LogicalXorScalar",
}
"""MXNet's names of ops with the number on the right."""

REVERSED = {
    "sub": "_rminus_scalar _RMinusScalar",
    "div": "_rdiv_scalar _RDivScalar",
    "mod": "_rmod_scalar _RModScalar",
    "power": "_rpower_scalar _RPowerScalar",
}
"""MXNet's names of ops with the number on the left."""

_RIGHT = {name: what for what, names in SPELLINGS.items() for name in names.split()}
_LEFT = {name: what for what, names in REVERSED.items() for name in names.split()}


def _number(c: Conversion) -> NodeEntry:
    """The number, truncated for integer inputs as in MXNet."""
    data = c.inputs[0]
    value = c.params.number("scalar", 1.0)
    return c.like("scalar", value if c.is_float(data) else int(value), data)


def _right(c: Conversion) -> NodeEntry:
    return arithmetic(c, _RIGHT[c.kind], c.inputs[0], _number(c))


def _left(c: Conversion) -> NodeEntry:
    return arithmetic(c, _LEFT[c.kind], _number(c), c.inputs[0])


register(" ".join(_RIGHT), _right, "scalar is_int", onnx=onnx_of(_RIGHT))
register(" ".join(_LEFT), _left, "scalar is_int", onnx=onnx_of(_LEFT))
