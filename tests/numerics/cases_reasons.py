"""Cases that ONNX's reference evaluator fails at, or answers otherwise: beside those of the other files, which onnxruntime runs.

Many are of opsets that onnxruntime no longer has kernels for.
"""

from __future__ import annotations

from typing import Any

import attrs
import ml_dtypes
import numpy as np

from tests.numerics.case import f32, i64, pos, u8


@attrs.frozen(eq=False)
class Witness:
    """One op at one opset."""

    op: str
    version: int
    inputs: list[Any]
    attributes: dict[str, Any] = attrs.field(factory=dict)
    outputs: int = 1
    domain: str = ""


def _first(inputs: list[Any]) -> list[Any]:
    """A body that returns its first input."""
    return inputs[:1]


def _keep_going(inputs: list[Any]) -> list[Any]:
    """The body of a Loop: the condition, and the state as it is."""
    return inputs[1:]


def _same(inputs: list[Any]) -> list[Any]:
    """A body that returns what it is given."""
    return inputs


X = f32(2, 3, 4)
IMAGE = f32(1, 2, 5, 4)
MATRIX = f32(2, 3)
SCALAR = np.array(2.5, np.float32)
INTEGERS = np.array([[1, -2, 3], [4, 5, -9]])
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1]]], np.float32)
BY_AXIS = {"axis": 0, "broadcast": 1}
TRUTH = MATRIX > 0

LONG = np.full((1, 1, 1, 1000), 1.25, ml_dtypes.bfloat16)
"""Numbers whose sum is too small in bfloat16, because from some point on the next number no longer changes it."""
AXES = {"ReduceSum": 13, "ReduceL1": 18, "ReduceL2": 18, "ReduceSumSquare": 18}
"""The first opset at which the axes are an input."""

WITNESSES = [
    *(Witness(op, since - 1, [LONG]) for op, since in AXES.items()),
    *(Witness(op, since, [LONG]) for op, since in AXES.items()),
    Witness("RMSNormalization", 23, [LONG, np.ones(1000, ml_dtypes.bfloat16)], {"epsilon": 1e-5}),
    Witness("ConvInteger", 10, [u8(1, 1, 9, 9), u8(1, 1, 7, 7)]),
    Witness("GlobalAveragePool", 22, [LONG]),
    Witness("InstanceNormalization", 22, [LONG, LONG[0, 0, 0, :1], LONG[0, 0, 0, :1]]),
    Witness("BatchNormalization", 15, [LONG, *[f32(1).astype(ml_dtypes.bfloat16)] * 3, pos(1).astype(ml_dtypes.bfloat16)]),
    Witness("CumSum", 14, [LONG, np.array(3)]),
    Witness("CumProd", 26, [LONG[..., :60], np.array(3)]),
    Witness("Sum", 13, [LONG[..., :1]] * 1000),
    Witness("Attention", 23, [LONG[..., :1], *[LONG.reshape(1, 1, 1000, 1)] * 2]),
    *(Witness(op, 1, [MATRIX, MATRIX[:, 0]], BY_AXIS) for op in ("Add", "Sub", "Mul", "Div", "Pow", "Greater", "Less")),
    *(Witness(op, 1, [TRUTH, TRUTH[:, 0]], BY_AXIS) for op in ("And", "Or", "Xor")),
    Witness("Equal", 1, [INTEGERS, INTEGERS[:, 0]], BY_AXIS),
    *(Witness(op, 7, [MATRIX, MATRIX]) for op in ("Add", "Sub", "Mul", "Div", "Greater", "Less", "Equal")),
    *(Witness(op, 7, [TRUTH, TRUTH]) for op in ("And", "Or", "Xor")),
    Witness("Pow", 15, [np.array([2, 3]), np.array([-1, 2])]),
    Witness("Mean", 13, [SCALAR, MATRIX]),
    Witness("Softsign", 1, [SCALAR]),
    Witness("PRelu", 16, [np.array([-1, 0, 1], np.float32), np.array([2, np.inf, np.nan], np.float32)]),
    Witness("Cast", 1, [MATRIX], {"to": "INT64"}),
    Witness("Cast", 13, [MATRIX], {"to": 8}),
    Witness("CastLike", 19, [np.array(["1.5"], object), np.zeros(1, ml_dtypes.bfloat16)]),
    Witness("NonMaxSuppression", 11, [BOXES, pos(1, 1, 2), np.array(3), np.array(0.5, np.float32), np.array(0.2, np.float32)]),
    Witness("FlexAttention", 1, [f32(1, 2, 3, 4)] * 3, {"score_mod": _first}, domain="ai.onnx.preview"),
    Witness("If", 16, [np.array(True)], {"then_branch": lambda _: [MATRIX], "else_branch": lambda _: [X]}),
    Witness("Loop", 16, [np.array(2), np.array(True), MATRIX], {"body": _keep_going}),
    Witness("Scan", 16, [X], {"body": _same, "num_scan_inputs": 1}),
    Witness("Scan", 8, [None, X], {"body": _same, "num_scan_inputs": 1}),
    Witness("SequenceMap", 17, [[MATRIX]], {"body": _same}),
    Witness("ReverseSequence", 10, [X, i64(1, 9, 2)], {"batch_axis": 1, "time_axis": 0}),
    Witness("Reshape", 1, [X], {"shape": [4, 6]}),
    Witness("Flatten", 13, [X[:0]]),
    Witness("Concat", 1, [MATRIX, MATRIX]),
    Witness("Tile", 1, [MATRIX, np.array(2, np.float32), np.array(1, np.float32)]),
    Witness("Pad", 2, [MATRIX], {"pads": [-1, 0, 0, 1]}),
    Witness("Constant", 13, [], {"value_strings": ["a", "b"]}),
    Witness("SoftmaxCrossEntropyLoss", 13, [np.array([[0, 65504, 65504]], np.float32), i64(0)], outputs=2),
    Witness("NegativeLogLikelihoodLoss", 13, [f32(2, 3), i64(0, -1)]),
    Witness("LogSoftmax", 13, [np.array([[0, 65504, 65504]], np.float32)]),
    Witness("MatMulInteger", 10, [u8(3, 4), u8(4, 3), np.array([1, 2, 3], np.uint8)]),
    Witness("QLinearMatMul", 21, [
        u8(2, 3), pos(2), u8(2), u8(3, 2), pos(2), u8(2), np.full(2, 400, np.float32), u8(2),
    ]),
    Witness("Optional", 15, [MATRIX]),
    Witness("RandomNormal", 1, [], {"shape": [2, 3], "seed": 1.0}),
    Witness("RandomUniform", 1, [], {"shape": [2, 3], "seed": 1.0}),
    *(Witness(op, 1, [MATRIX], {"seed": 1.0}) for op in ("RandomNormalLike", "RandomUniformLike")),
    Witness("Bernoulli", 15, [pos(2, 3) / 2], {"seed": 1.0}),
    Witness("Multinomial", 7, [MATRIX], {"sample_size": 3, "seed": 1.0}),
    Witness("Dropout", 1, [MATRIX], {"is_test": 1}),
    Witness("Dropout", 7, [MATRIX], outputs=2),
    Witness("Dropout", 13, [MATRIX]),
    Witness("Upsample", 1, [IMAGE], {"height_scale": 2.0, "width_scale": 2.0}),
    Witness("SequenceInsert", 11, [[MATRIX, X], SCALAR, np.array(2)]),
    *(Witness("ReduceLogSum", version, [abs(INTEGERS)]) for version in (13, 18)),
    *(Witness("ReduceLogSumExp", version, [SCALAR]) for version in (13, 18)),
    Witness("Clip", 6, [MATRIX], {"min": -0.5, "max": 0.5}),
    Witness("ScatterND", 16, [f32(40, 3), i64(*range(40))[:, None], f32(40, 3)]),
    Witness("ScatterElements", 16, [X, np.zeros((2, 3, 4), np.int64), X], {"axis": 0}),
    Witness("Det", 11, [f32(2, 3, 3).astype(np.float16)]),
    Witness("LpNormalization", 22, [np.zeros((2, 3), np.float32)]),
    Witness("DeformConv", 19, [x.astype(np.float16) for x in (f32(1, 1, 3, 3), f32(1, 1, 2, 2), f32(1, 8, 2, 2))]),
    Witness("GridSample", 16, [IMAGE, f32(1, 3, 3, 2)], {"mode": "bilinear"}),
    Witness("Clip", 13, [MATRIX.astype(ml_dtypes.bfloat16), np.array(0, ml_dtypes.bfloat16)]),
    Witness("TfIdfVectorizer", 9, [i64(1, 5, 2, 1, 2)], {
        "mode": "TF", "min_gram_length": 0, "max_gram_length": 2, "max_skip_count": 3, "ngram_counts": [0, 1],
        "ngram_indexes": [0, 1], "pool_int64s": [1, 1, 2],
    }),
    Witness("DynamicQuantizeLinear", 11, [f32(0)], outputs=3),
    Witness("LabelEncoder", 1, [np.array(["a", "b"], object)], {"classes_strings": ["b"]}, domain="ai.onnx.ml"),
    Witness("LabelEncoder", 4, [i64(1, 2)], {
        "keys_tensor": i64(1), "values_tensor": np.array(["a"], object),
    }, domain="ai.onnx.ml"),
    Witness("GatherND", 13, [f32(1, 2, 3), i64()]),
    Witness("STFT", 17, [f32(2, 8), i64(2).reshape(()), f32(4)]),
    Witness("FeatureVectorizer", 1, [f32(1, 1, 2)], {"inputdimensions": [2]}, domain="ai.onnx.ml"),
    Witness("LinearClassifier", 1, [f32(2, 2)], {
        "coefficients": [1.0] * 12, "intercepts": [0.0] * 3, "classlabels_ints": [0, 1, 2],
    }, 2, "ai.onnx.ml"),
    Witness("ZipMap", 1, [f32(2, 2)], {"classlabels_int64s": [3, 4]}, domain="ai.onnx.ml"),
    *(
        Witness(op, 3, [f32(3, 1)], {
            "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
            "nodes_values_as_tensor": np.array([0.5, 0, 0]), f"{kind}_treeids": [0, 0], f"{kind}_nodeids": [1, 2],
            f"{kind}_ids": [0, 0], f"{kind}_weights_as_tensor": np.array([0.25, 0.75]), **labels,
        }, outputs, "ai.onnx.ml")
        for op, kind, labels, outputs in (
            ("TreeEnsembleRegressor", "target", {"n_targets": 1}, 1),
            ("TreeEnsembleClassifier", "class", {"classlabels_int64s": [3, 4]}, 2),
        )
    ),
]
