"""Ops that onnxruntime lacks at some opsets, or computes otherwise: attention, losses, windows of signals, bits, text, chance."""

from __future__ import annotations

import numpy as np
import onnx

from tests.numerics.case import Case, f32, i64, pos, restart, u8

restart()
HEADS = [f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 6)]
PACKED = [f32(2, 3, 32), f32(2, 5, 16), f32(2, 5, 12)]
PAST = [f32(2, 2, 4, 8), f32(2, 2, 4, 6)]
MASK = np.array([[True, True, False, True, True], [True, False, True, True, False], [True, True, True, False, False]])
TWO_HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
LOSS = f32(3, 4, 2)
LABELS = np.array([[0, 3], [1, 2], [2, 0]])
TEXTS = np.array(["a b", "B c,d", "", "a"], object)

_EVERY = [
    Case("Attention", HEADS, {"scale": 0.3}, since=23),
    Case("Attention", HEADS, {"is_causal": 1, "softcap": 2.0}, since=23),
    Case("Attention", [*HEADS, f32(3, 5)], {"is_causal": 1}, since=23),
    Case("Attention", [*HEADS, MASK], {}, since=23),
    Case("Attention", [*HEADS, f32(2, 1, 3, 1)], {}, since=23),
    Case("Attention", [*HEADS, f32(3, 4)], {}, since=24),
    Case("Attention", PACKED, TWO_HEADS, since=23),
    Case("Attention", [*PACKED, f32(3, 9), *PAST], {**TWO_HEADS, "qk_matmul_output_mode": 1}, since=23, outputs=4),
    Case("Attention", [*HEADS, None, *PAST], {"is_causal": 1, "qk_matmul_output_mode": 2}, since=23, outputs=4),
    Case("Attention", [*HEADS, None, None, None, i64(5, 3)], {}, since=24),
    Case("RotaryEmbedding", [f32(2, 4, 3, 8), f32(2, 3, 4), f32(2, 3, 4)], {}, since=23),
    Case("RotaryEmbedding", [HEADS[0], f32(6, 4), f32(6, 4), i64(0, 2, 4, 5, 1, 3).reshape(2, 3)], {"interleaved": 1}, since=23),
    Case("RotaryEmbedding", [f32(2, 3, 32), f32(2, 3, 3), f32(2, 3, 3)], {"num_heads": 4, "rotary_embedding_dim": 6}, since=23),
    Case("NegativeLogLikelihoodLoss", [LOSS, LABELS], {"reduction": "mean"}, since=12),
    Case("NegativeLogLikelihoodLoss", [LOSS, LABELS, pos(4)], {"reduction": "none", "ignore_index": 2}, since=12),
    Case("NegativeLogLikelihoodLoss", [f32(3, 1), i64(0, 5, 0)], {"reduction": "sum", "ignore_index": 5}, since=12),
    Case("NegativeLogLikelihoodLoss", [f32(3, 4), i64(0, 9, -1)], {"reduction": "sum", "ignore_index": 9}, since=12),
    Case("SoftmaxCrossEntropyLoss", [f32(3, 5), i64(0, 4, 2)], {"reduction": "mean"}, since=12, outputs=2),
    Case("SoftmaxCrossEntropyLoss", [LOSS, LABELS, pos(4)], {"ignore_index": 1}, since=12, outputs=2),
    Case("SoftmaxCrossEntropyLoss", [f32(3, 5), i64(0, 5, 2)], {"reduction": "none"}, since=12),
    Case("DFT", [f32(1, 6, 1), None, np.int64(1)], {}, since=20),
    Case("DFT", [f32(2, 6, 2), np.int64(4), np.int64(1)], {"inverse": 1}, since=20),
    Case("DFT", [f32(2, 5, 1), np.int64(8), np.int64(-2)], {"onesided": 1}, since=20),
    Case("DFT", [f32(2, 5, 1), np.int64(4)], {"axis": 1, "onesided": 1}, since=17, until=19),
    Case("STFT", [f32(2, 12, 1), np.int64(3), pos(4)], {}, since=17),
    Case("STFT", [f32(1, 12, 1), np.int64(2), None, np.int64(5)], {"onesided": 0}, since=17),
    Case("HannWindow", [np.int64(7)], {"periodic": 0, "output_datatype": 1}, since=17),
    Case("HammingWindow", [np.int32(6)], {"output_datatype": 11}, since=17),
    Case("BlackmanWindow", [np.int64(5)], {}, since=17),
    Case("MelWeightMatrix", [np.int64(4), np.int64(16), np.int64(8000), np.float32(20), np.float32(3000)], {}, since=17),
    Case("AffineGrid", [f32(2, 2, 3), i64(2, 3, 4, 5)], {"align_corners": 1}, since=20),
    Case("AffineGrid", [f32(1, 3, 4), i64(1, 2, 3, 4, 2)], {}, since=20),
    Case("BitwiseAnd", [u8(2, 3), u8(3)], {}, since=18),
    Case("BitwiseOr", [i64(5, -3, 8), i64(3)], {}, since=18),
    Case("BitwiseXor", [u8(2, 3), u8(1, 3)], {}, since=18),
    Case("BitwiseNot", [np.array([1, -7, 0], np.int16)], {}, since=18),
    Case("Not", [np.array([[True, False]])]),
    Case("BitCast", [f32(2, 3)], {"to": 12}, since=26),
    Case("CastLike", [f32(2, 3), i64(1)], {}, since=15),
    Case("CastLike", [np.array([0.5, 300.0, -2.0, np.nan], np.float32), u8(2)], {"saturate": 0}, since=19),
    Case("CenterCropPad", [f32(5, 4, 3), i64(3, 6)], {"axes": [0, -1]}, since=18),
    Case("CenterCropPad", [f32(4, 7), i64(7, 2)], {}, since=18),
    Case("CumProd", [pos(3, 4), np.int64(1)], {"exclusive": 1}, since=26),
    Case("CumProd", [pos(3, 4), np.int32(-2)], {"reverse": 1}, since=26),
    Case("Swish", [f32(2, 5)], {"alpha": 0.7}, since=24),
    Case("TensorScatter", [f32(2, 2, 6, 3), f32(2, 2, 2, 3), i64(1, 4)], {"mode": "linear"}, since=24),
    Case("TensorScatter", [f32(2, 6, 3), f32(2, 3, 3), i64(4, 1)], {"mode": "circular", "axis": 1}, since=24),
    Case("Dropout", [f32(2, 5)], {}, outputs=2),
    Case("Dropout", [f32(2, 5), np.float32(0.4), np.array(True)], {"seed": 3}, since=12, outputs=2),
    Case("Bernoulli", [pos(20) / 1.2], {"seed": 2.0, "dtype": 6}, since=15),
    Case("Bernoulli", [pos(20) / 1.2], {"seed": 2.0}, since=15),
    Case("Multinomial", [f32(2, 4)], {"sample_size": 6, "seed": 1.0, "dtype": 7}),
    Case("RandomNormal", [], {"shape": [3, 4], "seed": 1.0, "mean": 2.0, "scale": 0.5, "dtype": 11}),
    Case("RandomUniform", [], {"shape": [3, 4], "seed": 1.0, "low": 2.0, "high": 5.0}),
    Case("RandomNormalLike", [f32(2, 3)], {"seed": 1.0, "dtype": 11}),
    Case("RandomNormalLike", [f32(2, 3).astype(np.float16)], {"seed": 1.0, "scale": 3.0}),
    Case("RandomUniformLike", [f32(2, 3)], {"seed": 1.0, "dtype": 10}),
    Case("RandomUniformLike", [i64(2, 3)], {"seed": 1.0, "dtype": 1, "high": 4.0}),
    Case("StringConcat", [TEXTS, np.array(["-"], object)], {}, since=20),
    Case("StringSplit", [TEXTS], {"delimiter": " ", "maxsplit": 1}, since=20, outputs=2),
    Case("StringNormalizer", [TEXTS], {"case_change_action": "UPPER", "stopwords": ["a"], "is_case_sensitive": 0}, since=10),
    Case("RegexFullMatch", [TEXTS], {"pattern": "[ab].*"}, since=20),
    Case(
        "TfIdfVectorizer", [np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]])],
        {
            "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1, "mode": "IDF", "ngram_counts": [0, 4],
            "ngram_indexes": [0, 1, 2, 3, 4, 5, 6], "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
            "weights": [1.0, 0.5, 2.0, 1.0, 3.0, 1.0, 0.25],
        }, since=9,
    ),
]

FURTHER = [case for case in _EVERY if case.since <= onnx.defs.onnx_opset_version() and [*case.versions()]]
"""Those of opsets that the installed ONNX has."""
