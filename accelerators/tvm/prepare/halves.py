"""Half-precision numbers: what rounds at every step is computed in float32 and rounded once, as ONNX's reference does it.

Sums of 4,096 ones are 2,048 in float16, and norms of them nothing at all. Ops that only move or compare numbers, and those of one
exact step, stay as they are."""

from __future__ import annotations

from partita.graph.node import Node
from partita.graph.types import TensorType

HALVES = frozenset(("float16", "bfloat16"))
"""The element types of two bytes."""

_SUMS = """Attention AveragePool BatchNormalization Conv ConvTranspose CumProd CumSum Einsum Gemm GlobalAveragePool GlobalLpPool
GlobalMaxPool GridSample InstanceNormalization LRN LogSoftmax LpNormalization LpPool MatMul MaxPool Mean MeanVarianceNormalization
RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare Resize RoiAlign RotaryEmbedding Softmax Sum Upsample"""

_FUNCTIONS = """Acos Acosh Asin Asinh Atan Atanh Celu Clip Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Max Min
Mish PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"""

WIDENED = frozenset((*_SUMS.split(), *_FUNCTIONS.split()))
"""Ops that are computed in float32."""

_SCATTERED = frozenset(("ScatterElements", "ScatterND"))


def is_half(entry: object) -> bool:
    """Does the value hold half-precision numbers?"""
    value_type = getattr(entry, "type", None)
    return isinstance(value_type, TensorType) and value_type.dtype in HALVES


def is_widened(node: Node) -> bool:
    """Is it an op that rounds half-precision numbers at every step?"""
    summed = node.op in WIDENED or (node.op in _SCATTERED and node.attrs.get("reduction", "none") != "none")
    return summed and not node.domain and any(map(is_half, node.inputs))
