"""Normalization, products, recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.numerics.case import Case, f32, i8, i64, pos, restart, u8

restart()
X = f32(2, 4, 7, 6)
STATS = [f32(4), f32(4), f32(4), pos(4)]
NORMS = [
    Case("BatchNormalization", [X, *STATS], {"epsilon": 1e-3}),
    Case("BatchNormalization", [X, *STATS], {"training_mode": 1, "momentum": 0.7}, since=14, outputs=3),
    Case(
        "BatchNormalization",
        [X, f32(4, 7, 6), f32(4, 7, 6), f32(4, 7, 6), pos(4, 7, 6)],
        {"spatial": 0},
        until=8,
    ),
    Case("InstanceNormalization", [X, f32(4), f32(4)], {"epsilon": 1e-2}),
    Case("GroupNormalization", [X, f32(2), f32(2)], {"num_groups": 2}, since=18, until=20),
    Case("GroupNormalization", [X, f32(4), f32(4)], {"num_groups": 2}, since=21),
    Case("LayerNormalization", [X, f32(7, 6), f32(7, 6)], {"axis": 2}, outputs=3),
    Case("LayerNormalization", [X, f32(6)]),
    Case("MeanVarianceNormalization", [X]),
    Case("MeanVarianceNormalization", [X], {"axes": [0, 2]}),
    Case("LpNormalization", [X], {"axis": 1, "p": 1}),
    Case("LpNormalization", [X]),
    Case("RMSNormalization", [X, f32(6)], {}, since=23),
    *(
        Case(op, [X], attrs)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for attrs in ({}, {"axis": 2}, {"axis": 0})
    ),
    *(Case(op, [X], {"axis": -2}, since=11) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    Case("Softmax", [f32(3)], {"axis": 0}),
    Case("MatMul", [f32(2, 1, 3, 4), f32(5, 4, 2)]),
    Case("MatMul", [f32(4), f32(3, 4, 2)]),
    Case("MatMul", [i64(1, 2, 3), i64(4, 5, 6)], since=9),
    Case("Gemm", [f32(3, 4), f32(5, 4), f32(5)], {"transB": 1, "alpha": 0.5, "beta": 0.3}),
    Case("Gemm", [f32(4, 3), f32(4, 5), f32(3, 1)], {"transA": 1}),
    Case("Gemm", [f32(4, 3), f32(4, 5)], {"transA": 1, "alpha": 2.0}, since=11),
    Case("MatMulInteger", [u8(3, 4), i8(4, 2), np.uint8(7), i8(2)]),
    Case("MatMulInteger", [u8(2, 3, 4), u8(4, 2)]),
    Case("Einsum", [f32(2, 3, 4), f32(2, 4, 5)], {"equation": "bij,bjk->bik"}),
    Case("Det", [f32(2, 3, 3)]),
]
LENGTHS = np.array([5, 2, 3], np.int32)


def _recurrent(op: str, gates: int) -> list[Case]:
    cases = []
    for direction, d in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        x, w, r, b = f32(5, 3, 4), f32(d, gates * 6, 4), f32(d, gates * 6, 6), f32(d, 2 * gates * 6)
        attrs: dict[str, Any] = {"hidden_size": 6, "direction": direction}
        states = [f32(d, 3, 6)] * (2 if op == "LSTM" else 1)
        outputs = 3 if op == "LSTM" else 2
        cases += [
            Case(op, [x, w, r, b], attrs, outputs=outputs),
            Case(op, [x, w, r, b, LENGTHS, *states], attrs, outputs=outputs),
            Case(op, [x, w, r], {**attrs, "clip": 0.4}, outputs=outputs),
        ]
    return cases


ONE = {"hidden_size": 6}
RECURRENT = [
    *_recurrent("RNN", 1), *_recurrent("GRU", 3), *_recurrent("LSTM", 4),
    Case("GRU", [f32(5, 3, 4), f32(1, 18, 4), f32(1, 18, 6), f32(1, 36)], {**ONE, "linear_before_reset": 1}, outputs=2),
    Case("GRU", [f32(5, 3, 4), f32(1, 18, 4), f32(1, 18, 6)], {**ONE, "activations": ["HardSigmoid", "Softsign"]}, outputs=2),
    Case("RNN", [f32(5, 3, 4), f32(1, 6, 4), f32(1, 6, 6)],
         {**ONE, "activations": ["LeakyRelu"], "activation_alpha": [0.3]}, outputs=2),
    Case("LSTM", [f32(5, 3, 4), f32(1, 24, 4), f32(1, 24, 6), f32(1, 48), None, None, None, f32(1, 18)], ONE, outputs=3),
    Case("LSTM", [f32(5, 3, 4), f32(1, 24, 4), f32(1, 24, 6)], {**ONE, "input_forget": 1}, outputs=3),
    Case("LSTM", [f32(5, 3, 4), f32(1, 24, 4), f32(1, 24, 6)], {**ONE, "activations": ["Sigmoid", "Relu", "Affine"],
         "activation_alpha": [0.5], "activation_beta": [0.1]}, outputs=3),
    *(Case("RNN", [f32(5, 3, 4), f32(1, 6, 4), f32(1, 6, 6)], {**ONE, "activations": [name], **attrs}, outputs=2)
      for name, attrs in (
          ("Affine", {"activation_alpha": [0.7], "activation_beta": [0.4]}), ("Elu", {"activation_alpha": [0.7]}),
          ("HardSigmoid", {"activation_alpha": [0.3], "activation_beta": [0.4]}), ("Softplus", {}), ("Softsign", {}),
          ("ScaledTanh", {"activation_alpha": [0.7], "activation_beta": [0.4]}), ("ThresholdedRelu", {"activation_alpha": [0.3]}),
      )),
]
