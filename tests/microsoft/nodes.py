"""Nodes of onnxruntime's own ops with inputs that are typical of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]


@attrs.frozen(eq=False)
class Case:
    """One node. Inputs are arrays; of a tuple the array is a constant; None is absent."""

    op: str
    inputs: Sequence[Array | tuple[Array] | None]
    attributes: Mapping[str, Any] = attrs.field(factory=dict)
    outputs: int = 1
    opset: int = 17
    schedule: str = ""
    """A kernel that `cpu` has to run it with."""

    def model(self) -> onnx.ModelProto:
        """The node as a model of its own."""
        inits, inputs, names = [], [], []
        for i, given in enumerate(self.inputs):
            names.append("" if given is None else f"i{i}")
            if isinstance(given, tuple):
                inits.append(numpy_helper.from_array(given[0], f"i{i}"))
            elif given is not None:
                inputs.append(helper.make_tensor_value_info(f"i{i}", helper.np_dtype_to_tensor_dtype(given.dtype), given.shape))
        results = [helper.make_value_info(f"o{i}", onnx.TypeProto()) for i in range(self.outputs)]
        node = helper.make_node(
            self.op, names, [r.name for r in results], name="node", domain="com.microsoft", **dict(self.attributes)
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(helper.make_graph([node], "case", inputs, results, inits), opset_imports=opsets, ir_version=10)

    @property
    def feeds(self) -> dict[str, Array]:
        """The inputs that are not constants."""
        return {f"i{i}": given for i, given in enumerate(self.inputs) if isinstance(given, np.ndarray)}


RANDOM = np.random.default_rng(0)


def _bytes(*shape: int) -> Array:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def _signed(*shape: int) -> Array:
    return RANDOM.integers(-127, 128, shape).astype(np.int8)


def _weights(*shape: int) -> Array:
    """Of seven bits: with AVX2 alone onnxruntime lets its sums of two products overflow where weights have eight."""
    return _signed(*shape) >> 1


def _numbers(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def _scales(*shape: int) -> tuple[Array]:
    return (RANDOM.uniform(0.01, 0.02, shape).astype(np.float32),)


def _scale(value: float) -> tuple[Array]:
    return (np.array(value, np.float32),)


def _point(value: int, dtype: Any = np.uint8) -> tuple[Array]:
    return (np.array(value, dtype),)


def _read(dtype: Any = np.uint8) -> tuple[tuple[Array], tuple[Array]]:
    """A scale and a zero point of what is read."""
    return _scale(0.103), _point(20, dtype)


def _written(dtype: Any = np.uint8) -> tuple[tuple[Array], tuple[Array]]:
    return _scale(0.147), _point(90, dtype)


def _unary(op: str, *written: tuple[Array], shape: tuple[int, ...] = (2, 30), schedule: str = "", **attributes: Any) -> Case:
    return Case(op, [_bytes(*shape), *_read(), *(written or _written())], attributes, schedule=schedule)


_PART, _SIGNED = (_scale(1 / 256), _point(0)), (_scale(0.9), _point(-3, np.int8))
_CHOICE = RANDOM.random((2, 5)) > 0.5

LINEAR = [
    Case("QLinearAdd", [_bytes(2, 3, 4), *_read(), _bytes(1, 3, 4), *_written(), _scale(0.211), _point(7)]),
    Case("QLinearMul", [_signed(2, 4), *_read(np.int8), _signed(2, 4), *_written(np.int8), *_SIGNED], opset=11),
    Case("QLinearConcat", [*_written(), _bytes(2, 3, 4), *_read(), _bytes(2, 5, 4), *_written()], {"axis": 1}),
    _unary("QLinearSigmoid", *_PART, schedule="lookup"),
    _unary("QLinearLeakyRelu", alpha=0.2),
    _unary("QLinearSoftmax", *_PART, schedule="rows", axis=-1, opset=13),
    _unary("QLinearAveragePool", shape=(1, 3, 8, 8), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
    _unary("QLinearAveragePool", shape=(1, 8, 8, 3), kernel_shape=[3, 3], channels_last=1),
    _unary("QLinearGlobalAveragePool", shape=(1, 3, 8, 8)),
    _unary("QLinearGlobalAveragePool", shape=(1, 8, 8, 3), channels_last=1),
    Case("QLinearWhere", [_CHOICE, _bytes(2, 5), *_read(), _bytes(2, 5), *_written(), _scale(0.211), _point(7)]),
]
"""Ops on integers."""

_BIAS = (RANDOM.integers(-1000, 1000, 8).astype(np.int32),)
_LEFT, _RIGHT = (_bytes(4, 16), _scale(0.02), _point(128)), (_weights(16, 8),)

PRODUCTS = [
    Case("QGemm", [*_LEFT, _RIGHT, _scale(0.01), _point(0, np.int8), _BIAS, *_written()], schedule="quantized product"),
    Case("QGemm", [*_LEFT, (_RIGHT[0].T.copy(),), _scales(8), (np.zeros(8, np.int8),), _BIAS, *_written()], {"transB": 1},
         schedule="quantized product"),
    Case("QGemm", [*_LEFT, _RIGHT, _scale(0.01), _point(0, np.int8), _BIAS], {"alpha": 1.0}, schedule="quantized product"),
    Case("DynamicQuantizeMatMul", [_numbers(4, 16), _RIGHT, _scale(0.01), _point(0, np.int8), (_numbers(8),)],
         schedule="quantized product"),
    Case("DynamicQuantizeMatMul", [_numbers(3, 4, 16), _RIGHT, _scales(8), (np.zeros(8, np.int8),)],
         schedule="quantized product"),
    Case("MatMulIntegerToFloat", [_LEFT[0], _RIGHT, *_LEFT[1:2], _scale(0.01), _LEFT[2], _point(0, np.int8), (_numbers(8),)],
         schedule="quantized product"),
]
"""Products of integers."""


def _blocked(sizes: tuple[int, int, int, int], *more: Any, rows: int = 3, opset: int = 17, schedule: str = "") -> Case:
    """A product by weights of so many bits, of this depth, so many columns, in blocks of that size."""
    bits, depth, columns, block = sizes
    blocks = -(-depth // block)
    stored = _bytes(columns, blocks, block * bits // 8)
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    inputs = [_numbers(rows, depth), (stored,), _scales(columns * blocks), *more]
    return Case("MatMulNBits", inputs, attributes, opset=opset, schedule=schedule)


def _points(bits: int, blocks: int, columns: int) -> tuple[Array]:
    return (_bytes(columns * -(-blocks * bits // 8)),)


BLOCKED = [
    _blocked((4, 64, 16, 32), schedule="packed product"),
    _blocked((4, 64, 16, 32), _points(4, 2, 16), schedule="packed product"),
    _blocked((4, 70, 5, 32), _points(4, 3, 5), rows=1, opset=21, schedule="packed product"),
    _blocked((4, 40, 6, 16), (RANDOM.uniform(3, 12, 18).astype(np.float32),)),
    _blocked((4, 64, 6, 16), None, (RANDOM.integers(0, 4, 64).astype(np.int32),)),
    _blocked((4, 64, 16, 32), None, None, (_numbers(16),), schedule="packed product"),
    _blocked((8, 64, 16, 32), schedule="packed product"),
    _blocked((8, 70, 5, 32), _points(8, 3, 5), rows=1, opset=21, schedule="packed product"),
]
"""Weights in blocks."""

_IDS, _SEGMENTS = RANDOM.integers(0, 20, (2, 5)).astype(np.int32), RANDOM.integers(0, 2, (2, 5)).astype(np.int32)
_TABLES = [(_numbers(*shape),) for shape in ((20, 8), (16, 8), (2, 8), (8,), (8,))]
_MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
_CONV = [_numbers(1, 3, 8, 8), (_numbers(4, 3, 3, 3),), (_numbers(4),)]
_SKIPPED = [_numbers(2, 3, 8), _numbers(2, 3, 8), (_numbers(8),)]

FUSED = [
    Case("FusedMatMul", [_numbers(2, 3, 16), _numbers(2, 16, 5)], {"alpha": 0.5}),
    Case("FusedMatMul", [_numbers(2, 16, 3), _numbers(2, 5, 16)], {"transA": 1, "transB": 1}),
    Case("FusedMatMul", [_numbers(3, 2, 16), _numbers(5, 2, 16)], {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    Case("FusedConv", _CONV, {"kernel_shape": [3, 3], "activation": "Relu"}, schedule="blocked convolution"),
    Case("FusedConv", [*_CONV, _numbers(1, 4, 6, 6)], {"activation": "Clip", "activation_params": [0.0, 1.0]}),
    Case("FusedConv", _CONV, {"activation": "HardSigmoid", "activation_params": [0.2, 0.4]}),
    Case("FusedGemm", [_numbers(3, 8), (_numbers(8, 4),), (_numbers(4),)], {"activation": "LeakyRelu", "activation_alpha": 0.3},
         schedule="gemm"),
    Case("Gelu", [_numbers(3, 8)]),
    Case("BiasGelu", [_numbers(3, 8), (_numbers(8),)]),
    Case("FastGelu", [_numbers(3, 8)]),
    Case("FastGelu", [_numbers(3, 8), (_numbers(8),)]),
    Case("QuickGelu", [_numbers(3, 8)], {"alpha": 1.5}),
    Case("SkipLayerNormalization", [*_SKIPPED, (_numbers(8),), (_numbers(8),)], {"epsilon": 1e-5}, opset=11, schedule="rows"),
    Case("SkipSimplifiedLayerNormalization", _SKIPPED, {"epsilon": 1e-5}, schedule="rows"),
    Case("EmbedLayerNormalization", [_IDS, _SEGMENTS, *_TABLES], {"epsilon": 1e-5}, 2),
    Case("EmbedLayerNormalization", [_IDS, _SEGMENTS, *_TABLES, _MASK], {"epsilon": 1e-5}, 3),
]
"""What onnxruntime's optimizer fuses."""

_X, _WEIGHTS = _numbers(2, 5, 16), [(_numbers(16, 24) / 4,), (_numbers(24),)]
_HEADS, _PAST = {"num_heads": 2}, _numbers(2, 2, 2, 3, 4)
_Q, _K, _V = _numbers(2, 5, 8), _numbers(2, 7, 8), _numbers(2, 7, 8)
_QKV_BIAS, _OLD = (_numbers(24),), (_numbers(2, 2, 3, 4), _numbers(2, 2, 3, 4))
_QUANTIZED = [_bytes(2, 5, 16), (_weights(16, 24),), (_numbers(24),), _scale(0.02)]
_RAW, _ENDS = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], np.int32), np.array([3, 5], np.int32)
_PAST_MASK = np.array([[1, 1, 1, 0, 0, 1, 1, 1], [1, 0, 1, 1, 1, 1, 1, 0]], np.int32)
_BY_ROWS = (RANDOM.random((2, 5, 5)) > 0.3).astype(np.int32)
_ADDED = _numbers(1, 2, 5, 5)
_PADDED, _LOWEST = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], np.int32), float(np.finfo(np.float32).min)
"""A row whose first queries may see no key at all."""

_LONG = [_numbers(2, 64, 64), (_numbers(64, 192) / 8,), (_numbers(192),)]
_LONG_MASK = (RANDOM.random((2, 64)) > 0.3).astype(np.int32)

ATTENTION = [
    Case("Attention", [_X, *_WEIGHTS], _HEADS),
    Case("Attention", [_X, *_WEIGHTS, _RAW], _HEADS, opset=11),
    Case("Attention", [_X, *_WEIGHTS, _ENDS], {**_HEADS, "mask_filter_value": -3.0}),
    Case("Attention", [_X, *_WEIGHTS, np.array([3, 5, 1, 0], np.int32)], _HEADS),
    Case("Attention", [_X, *_WEIGHTS, _BY_ROWS], {**_HEADS, "scale": 0.3}),
    Case("Attention", [_X, *_WEIGHTS], {**_HEADS, "unidirectional": 1}),
    Case("Attention", [_X, *_WEIGHTS, _PAST_MASK, _PAST], {**_HEADS, "unidirectional": 1}, 2),
    Case("Attention", [_X, *_WEIGHTS, None, None, _ADDED], _HEADS, 2),
    Case("Attention", [_X, (_numbers(16, 28) / 4,), (_numbers(28),)], {**_HEADS, "qkv_hidden_sizes": [8, 8, 12]}),
    Case("QAttention", [*_QUANTIZED, _scale(0.01), None, _point(120), _point(0, np.int8)], _HEADS, schedule="quantized product"),
    Case("QAttention", [*_QUANTIZED, _scales(24), _RAW, _point(120), (np.zeros(24, np.int8),)], _HEADS,
         schedule="quantized product"),
    Case("QAttention", [*_QUANTIZED, _scale(0.01), _PAST_MASK, _point(7), _point(3, np.int8), _PAST],
         {**_HEADS, "unidirectional": 1}, 2),
    Case("QAttention", [*_QUANTIZED, _scale(0.01), None, _point(120), (_signed(24),)], _HEADS),
    Case("QAttention", [*_QUANTIZED, _scales(24), None, _point(120), _point(3, np.int8)], _HEADS),
    Case("QAttention", [*_QUANTIZED, _scale(0.01), None, _point(120), _signed(24)], _HEADS),
    Case("Attention", [_X, *_WEIGHTS, _PADDED], {**_HEADS, "unidirectional": 1, "mask_filter_value": _LOWEST}),
    Case("Attention", [*_LONG, _LONG_MASK], _HEADS, schedule="attention"),
    Case("Attention", _LONG, {**_HEADS, "unidirectional": 1}, schedule="attention"),
    Case("Attention", [*_LONG, _LONG_MASK], {**_HEADS, "unidirectional": 1}, schedule="attention"),
    Case("MultiHeadAttention", [*_LONG[:1] * 3, None, _LONG_MASK], _HEADS, schedule="attention"),
    Case("MultiHeadAttention", [_Q, _K, _V], _HEADS),
    Case("MultiHeadAttention", [_Q, _K, _V], {**_HEADS, "unidirectional": 1}),
    Case("MultiHeadAttention", [_K, _Q, _Q], {**_HEADS, "unidirectional": 1}),
    Case("MultiHeadAttention", [_Q[:, :1].copy(), _K, _V], {**_HEADS, "unidirectional": 1}),
    Case("MultiHeadAttention", [_Q, _K, _V, _QKV_BIAS, np.array([4, 7], np.int32)], _HEADS),
    Case("MultiHeadAttention", [_Q, _Q, _Q, None, _PAST_MASK, None, *_OLD], {**_HEADS, "unidirectional": 1}, 3),
    Case("MultiHeadAttention", [_Q, _Q, _Q, None, None, _ADDED], {**_HEADS, "scale": 0.2}),
    Case("MultiHeadAttention", [_Q, _numbers(2, 2, 7, 4), _numbers(2, 2, 7, 4)], _HEADS),
    Case("MultiHeadAttention", [_Q, _numbers(2, 2, 7, 4), _numbers(2, 2, 7, 4), _QKV_BIAS], _HEADS),
]
"""Attention, whole."""

_TOKEN = [_numbers(2, 1, 8) for _ in range(3)]
_BUFFER = [_numbers(2, 2, 6, 4) for _ in range(2)]
_OF_BEAMS = np.array([[[0, 1, 1, 9, 9, 9], [1, 0, 1, 9, 9, 9]]], np.int32)
"""Two beams; the numbers of positions that do not count are of no beam."""
_KEPT = np.array([[1, 0, 1, 1], [1, 1, 1, 0]], np.int32)
_THREE, _TWO = (np.array([3], np.int32),), (np.array([2], np.int32),)
_BUFFERED = {"num_heads": 2, "past_present_share_buffer": 1}

MASKED = [
    Case("DecoderMaskedMultiHeadAttention", [_TOKEN[0], _numbers(2, 2, 4, 4), _numbers(2, 2, 4, 4), _KEPT], _HEADS),
    Case("DecoderMaskedMultiHeadAttention", [_TOKEN[0], *[_numbers(2, 2, 4, 4)] * 2, *[None] * 7, _QKV_BIAS], _HEADS),
    Case("DecoderMaskedMultiHeadAttention", [*_TOKEN, _KEPT, None, *_BUFFER, _THREE, None, None, _QKV_BIAS], _BUFFERED, 3),
    Case("DecoderMaskedMultiHeadAttention", [*_TOKEN, None, _numbers(2, 2, 1, 4), *_BUFFER, _THREE],
         {**_BUFFERED, "scale": 0.3}, 3),
    Case("DecoderMaskedMultiHeadAttention", [*_TOKEN, _KEPT, _numbers(1, 2, 1, 4), *_BUFFER, _THREE, _TWO, _OF_BEAMS],
         _BUFFERED, 3),
    Case("MultiHeadAttention", [*_TOKEN, _QKV_BIAS, _KEPT, None, *_BUFFER, _THREE, _OF_BEAMS], _HEADS, 3),
]
"""Attention of one token to a cache in one buffer, or to another sequence."""

_ANGLES = RANDOM.random((16, 8)) * 3
_TABLES = [(np.cos(_ANGLES).astype(np.float32),), (np.sin(_ANGLES).astype(np.float32),)]
_QUARTERS = [(table[0][:, :4].copy(),) for table in _TABLES]
_GROUPS = {"num_heads": 4, "kv_num_heads": 2}


def _cached(batch: int, rows: int, past: int, ends: Sequence[int], *more: Array | tuple[Array] | None) -> list[Any]:
    """What GroupQueryAttention reads: four heads of sixteen numbers, and two of keys and values."""
    given = [_numbers(batch, rows, width) for width in (64, 32, 32)]
    cache = [_numbers(batch, 2, past, 16) for _ in range(2)]
    return [*given, *cache, np.array(ends, np.int32) - 1, np.array(past + rows, np.int32), *more]


def _packed(given: list[Any]) -> list[Any]:
    return [np.concatenate(given[:3], axis=-1), None, None, *given[3:]]


def _uncached(given: list[Any]) -> list[Any]:
    return [*given[:3], None, None, *given[5:]]


GROUPED = [
    Case("RotaryEmbedding", [_numbers(2, 5, 32), np.array([3]), *_TABLES], opset=21),
    Case("RotaryEmbedding", [_numbers(2, 4, 5, 16), np.array([[0, 1, 2, 3, 4], [7, 8, 9, 3, 0]]), *_TABLES], {"interleaved": 1}),
    Case("RotaryEmbedding", [_numbers(2, 5, 64), np.array([3]), *_QUARTERS], {"num_heads": 4, "rotary_embedding_dim": 8}),
    Case("GroupQueryAttention", _cached(1, 5, 0, [5]), _GROUPS, 3),
    Case("GroupQueryAttention", _uncached(_cached(2, 1, 0, [1, 1], *_TABLES)), {**_GROUPS, "do_rotary": 1}, 3),
    Case("GroupQueryAttention", _cached(1, 3, 6, [9]), {**_GROUPS, "scale": 0.3}, 3),
    Case("GroupQueryAttention", _cached(2, 1, 6, [7, 7], *_TABLES), {**_GROUPS, "do_rotary": 1}, 3),
    Case("GroupQueryAttention", _packed(_cached(1, 3, 6, [9], *_TABLES)),
         {**_GROUPS, "do_rotary": 1, "rotary_interleaved": 1}, 3),
    Case("GroupQueryAttention", _cached(1, 3, 6, [9]), {**_GROUPS, "local_window_size": 4, "softcap": 2.0}, 3),
    Case("GroupQueryAttention", _cached(1, 3, 6, [9], None, None, None, _numbers(1, 4, 3, 9)), _GROUPS, 3),
    Case("GroupQueryAttention", _cached(2, 1, 6, [7, 7], *[None] * 4, _numbers(4)), _GROUPS, 3),
    Case("GroupQueryAttention", _cached(1, 3, 6, [9], *[None] * 4, (_numbers(4),)), {**_GROUPS, "local_window_size": 4}, 3),
    Case("GroupQueryAttention", _cached(1, 3, 6, [9]), {**_GROUPS, "smooth_softmax": 1, "softcap": 2.0}, 3),
]
"""Attention of grouped heads, to a cache."""

SHARED = Case("GroupQueryAttention", [*_cached(1, 1, 6, [4])[:6], np.array(4, np.int32)], _GROUPS, 3)
"""A cache in one buffer of six positions: present is as long as past, which onnxruntime takes from its last input's value."""

COMPUTED_SCALES = [
    Case("QGemm", [*_LEFT, _RIGHT, np.array(0.01, np.float32), _point(0, np.int8), _BIAS, *_written()]),
    Case("QGemm", [*_LEFT, _RIGHT, _scales(8)[0], (np.zeros(8, np.int8),), _BIAS, *_written()]),
]
"""Products whose scales are inputs; at the end, since kept lines number what is before."""

ALL = [*LINEAR, *PRODUCTS, *BLOCKED, *FUSED, *ATTENTION, *GROUPED, *MASKED, *COMPUTED_SCALES]
