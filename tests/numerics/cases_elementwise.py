"""Element-wise ops, reductions, quantization."""

from __future__ import annotations

import numpy as np

from tests.numerics.case import Case, f32, i8, i64, pos, restart, u8

restart()
X = f32(2, 4, 7, 6)
UNARY = (
    "Abs Ceil Cos Exp Floor Neg Reciprocal Sigmoid Sign Sin Tanh Tan "
    "Erf Relu Softplus Softsign Atan Sinh Cosh Asinh Round HardSwish Mish IsNaN"
)
ACTIVATIONS = [
    ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.3}), ("Elu", {"alpha": 0.7}), ("Selu", {}), ("Celu", {"alpha": 0.6}),
    ("ThresholdedRelu", {"alpha": 0.5}), ("HardSigmoid", {}), ("HardSigmoid", {"alpha": 0.4, "beta": 0.3}),
    ("Gelu", {}), ("Gelu", {"approximate": "tanh"}), ("Shrink", {"bias": 0.2, "lambd": 0.4}),
]
ELEMENTWISE = [
    *(Case(op, [f32(3, 5)]) for op in UNARY.split()),
    *(Case(op, [pos(3, 5)]) for op in ("Log", "Sqrt")),
    *(Case(op, [(pos(3, 5) - 0.6).clip(-0.99, 0.99)]) for op in ("Acos", "Asin", "Atanh")),
    Case("Acosh", [pos(3, 5) + 1]),
    *(Case(op, [f32(3, 5)], attrs) for op, attrs in ACTIVATIONS),
    *(Case(op, [X, f32(4, 1, 1)]) for op in ("Add", "Sub", "Mul", "Div", "PRelu")),
    *(Case(op, [X, f32(7, 6)]) for op in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")),
    *(Case(op, [i64(7, -7, 7, -7), i64(2, 2, -2, -2)]) for op in ("Div", "Mod", "Equal")),
    *(Case(op, [i64(7, -7), i64(2, 2)], since=12) for op in ("Max", "Min")),
    Case("Mod", [f32(9) * 5, f32(9)], {"fmod": 1}, since=10),
    Case("Pow", [pos(3, 4), f32(4)]),
    Case("Pow", [i64(2, 3, 4), np.array([2, 1, 3], np.float32)], since=12),
    Case("Pow", [f32(3), i64(2, 3, 1)], since=12),
    *(Case(op, [f32(3, 4), f32(3, 1), f32(4)], since=8) for op in ("Max", "Min", "Sum", "Mean")),
    *(Case(op, [f32(3, 4), f32(3, 4)], until=7) for op in ("Max", "Min", "Sum", "Mean")),
    *(Case(op, [f32(3, 4) > 0, f32(4) > 0]) for op in ("And", "Or", "Xor")),
    Case("Where", [f32(3, 4) > 0, f32(3, 4), f32(4)]),
    Case("Clip", [X], {"min": -0.5, "max": 0.7}, until=10),
    Case("Clip", [X], {"max": 0.7}, until=10),
    Case("Clip", [X, np.float32(-0.5), np.float32(0.7)], since=11),
    Case("Clip", [X, None, np.float32(0.7)], since=11),
    Case("Clip", [X, np.float32(0.9), np.float32(0.1)], since=11),
    Case("BitShift", [np.array([1, 5, 255], np.uint8), np.array([1, 3, 2], np.uint8)], {"direction": "LEFT"}),
    Case("IsInf", [np.array([1, -np.inf, np.inf, np.nan], np.float32)], {"detect_negative": 0}),
]
REDUCE = (
    "ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp"
)
TIES = np.array([[2, 2, 1], [0, 3, 3]], np.float32)
REDUCTIONS = [
    *(Case(op, [X], {"axes": [1, -1], "keepdims": 0}, until=12) for op in REDUCE.split()),
    *(Case(op, [X], {}, until=12) for op in REDUCE.split()),
    Case("ReduceSum", [X, i64(1, -1)], {"keepdims": 0}, since=13),
    Case("ReduceSum", [X], {"noop_with_empty_axes": 1}, since=13),
    *(Case(op, [X, i64(-2)], since=18) for op in REDUCE.split()),
    *(Case(op, [X, i64()], {"noop_with_empty_axes": 1}, since=18) for op in REDUCE.split()[:4]),
    Case("ReduceLogSum", [pos(3, 4)], {"axes": [0]}, until=17),
    Case("ReduceMean", [i64(1, 2, -4, -5)], until=17),
    *(Case(op, [TIES], {"axis": 1}) for op in ("ArgMax", "ArgMin")),
    *(Case(op, [TIES], {"axis": 1, "select_last_index": 1}, since=12) for op in ("ArgMax", "ArgMin")),
    Case("TopK", [np.array([[1, 3, 3, 2], [4, 1, 4, 0]], np.float32)], {"k": 2}, until=9, outputs=2),
    Case("TopK", [X, i64(3)], {"axis": 1}, since=10, outputs=2),
    Case(
        "TopK",
        [np.array([[1, 3, 1, 2], [4, 1, 4, 1]], np.float32), i64(3)],
        {"largest": 0},
        since=11,
        outputs=2,
    ),
    Case("CumSum", [X, np.array(2)], {"exclusive": 1, "reverse": 1}, since=11),
    Case("CumSum", [X, np.array(-1)], {"reverse": 1}, since=11),
]
HUGE = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e30, -1e30, 3e9, -3e9, 0.25, 0.75, -0.25, 200, -200, 1e-45], np.float32)
"""Numbers that no integer is near, halves of a step, and the smallest one."""
QUANTIZED = [
    Case("QuantizeLinear", [f32(3, 4) * 9, np.float32(0.1), np.uint8(120)]),
    Case("QuantizeLinear", [f32(3, 4) * 9, np.float32(0.1)]),
    Case("QuantizeLinear", [f32(3, 4) * 9, pos(4), i8(4)], {"axis": 1}, since=13),
    *(Case("QuantizeLinear", [HUGE, np.float32(scale), point])
      for scale in (0.5, -1e-20, 1e20) for point in (np.uint8(3), np.int8(-128), np.int8(127))),
    *(Case("QuantizeLinear", [HUGE, np.float32(0.5), point], since=21) for point in (np.uint16(3), np.int16(-32768))),
    Case("DequantizeLinear", [u8(3, 4), np.float32(0.1), np.uint8(120)]),
    Case("DequantizeLinear", [i8(3, 4), pos(3), i8(3)], {"axis": 0}, since=13),
    Case("DequantizeLinear", [np.arange(5, dtype=np.int32), np.float32(0.1)]),
    Case("DynamicQuantizeLinear", [f32(3, 4)], outputs=3),
    Case("QLinearMatMul", [u8(3, 4), np.float32(0.01), np.uint8(7), u8(4, 2), np.float32(0.02), np.uint8(99),
                           np.float32(0.05), np.uint8(30)]),
    Case("QLinearMatMul", [np.uint8([[1], [3]]), np.float32(0.5), np.uint8(0), np.uint8([[1]]), np.float32(1), np.uint8(0),
                           np.float32(1), np.uint8(1)]),
    Case("QLinearConv", [u8(1, 2, 5, 5), np.float32(0.01), np.uint8(9), i8(3, 2, 3, 3), pos(3), i8(3) * 0,
                         np.float32(0.5), np.uint8(100), np.arange(3, dtype=np.int32) * 50], {"pads": [1, 1, 1, 1]}),
]
