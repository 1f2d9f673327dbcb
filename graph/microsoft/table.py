"""The supported ops of onnxruntime's domain: the body of each in ONNX's ops, and the opset that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from partita.graph.body_builder import BodyBuilder, NoBody, NotYet, Values
from partita.graph.errors import did_you_mean
from partita.graph.graph import Graph
from partita.graph.microsoft import attention, blocks, fused, grouped, linear, recurrent
from partita.graph.node import Node
from partita.graph.types import Type

DOMAIN = "com.microsoft"
"""onnxruntime's own domain."""


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


@attrs.frozen(slots=True)
class Meaning:
    """The decomposition of one op."""

    body: Callable[[BodyBuilder], Graph]
    """Writes the body."""
    since: int
    """The lowest opset that has the ops of the body."""
    attributes: frozenset[str] = attrs.field(converter=_names, default="")
    """The supported attributes."""
    types: Callable[[BodyBuilder], Sequence[Type]] | None = None
    """Rule for the types of the results, if the body is too large to be written for them alone."""


_POOL = "auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides"
_CONV = "activation activation_params auto_pad dilations group kernel_shape pads strides"
_GEMM = "activation activation_alpha activation_beta activation_gamma alpha beta transA transB"
_TURNED = "alpha transA transB transBatchA transBatchB"
_ATTENTION = "do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional"
_MASKED = "mask_filter_value num_heads scale"
_GROUPED = (
    "causal do_rotary k_quant_type kv_cache_bit_width kv_num_heads local_window_size num_heads qk_norm_epsilon qk_output"
    " rotary_interleaved scale sliding_window_cache smooth_softmax softcap v_quant_type"
)
_LSTM = "activation_alpha activation_beta activations clip direction hidden_size input_forget"
_NBITS = "K N bits block_size accuracy_level weight_prepacked"

_MEANINGS = {
    "QuantizeLinear": Meaning(linear.quantize, 21, "axis"),
    "DequantizeLinear": Meaning(linear.dequantize, 21, "axis"),
    "QLinearAdd": Meaning(linear.binary, 13),
    "QLinearMul": Meaning(linear.binary, 13),
    "QLinearConcat": Meaning(linear.concat, 13, "axis"),
    "QLinearSigmoid": Meaning(linear.sigmoid, 13),
    "QLinearLeakyRelu": Meaning(linear.leaky_relu, 13, "alpha"),
    "QLinearSoftmax": Meaning(linear.softmax, 13, "axis opset"),
    "QLinearAveragePool": Meaning(linear.average_pool, 13, _POOL),
    "QLinearGlobalAveragePool": Meaning(linear.global_average_pool, 13, "channels_last"),
    "QLinearReduceMean": Meaning(linear.reduce_mean, 13, "axes keepdims"),
    "QLinearWhere": Meaning(linear.where, 13),
    "QGemm": Meaning(linear.gemm, 13, "alpha transA transB"),
    "MatMulIntegerToFloat": Meaning(linear.matmul_to_float, 13),
    "DynamicQuantizeMatMul": Meaning(linear.dynamic_matmul, 13),
    "MatMulNBits": Meaning(blocks.matmul, 21, _NBITS, blocks.matmul_types),
    "GatherBlockQuantized": Meaning(blocks.gather, 21, "bits block_size gather_axis quantize_axis"),
    "FusedMatMul": Meaning(fused.matmul, 13, _TURNED),
    "TransposeMatMul": Meaning(fused.matmul, 13, _TURNED),
    "FusedGemm": Meaning(fused.gemm, 13, _GEMM),
    "FusedConv": Meaning(fused.conv, 13, _CONV),
    "Gelu": Meaning(fused.gelu, 13),
    "BiasGelu": Meaning(fused.gelu, 13),
    "FastGelu": Meaning(fused.fast_gelu, 13),
    "QuickGelu": Meaning(fused.quick_gelu, 13, "alpha"),
    "SkipLayerNormalization": Meaning(fused.skip_layer_norm, 17, "epsilon"),
    "SkipSimplifiedLayerNormalization": Meaning(fused.simplified_skip_layer_norm, 18, "epsilon"),
    "Attention": Meaning(attention.attention, 14, f"{_ATTENTION} qkv_hidden_sizes rotary_embedding_dim"),
    "QAttention": Meaning(attention.quantized, 14, _ATTENTION),
    "MultiHeadAttention": Meaning(attention.of_heads, 14, f"{_MASKED} unidirectional"),
    "DecoderMaskedMultiHeadAttention": Meaning(attention.of_one_token, 14, f"{_MASKED} output_qk past_present_share_buffer"),
    "GroupQueryAttention": Meaning(grouped.attention, 13, _GROUPED, grouped.attention_types),
    "RotaryEmbedding": Meaning(grouped.rotary, 13, "interleaved is_packed_batching num_heads rotary_embedding_dim scale"),
    "DynamicQuantizeLSTM": Meaning(recurrent.lstm, 14, _LSTM),
    "EmbedLayerNormalization": Meaning(fused.embed_layer_norm, 17, "epsilon mask_index_type"),
}


def is_known(node: Node) -> bool:
    """True for an op of onnxruntime's that is in the table."""
    return node.domain == DOMAIN and node.subgraph is None and node.op in _MEANINGS


def needed_opset(node: Node) -> int:
    """The lowest opset that has the ops of the node's body."""
    return _MEANINGS[str(node.op)].since


def why_unknown(node: Node) -> str | None:
    """The reason for which an op of onnxruntime's is not supported; None if it is, or for any other op."""
    if node.domain != DOMAIN:
        return None
    if node.op not in _MEANINGS:
        hint = did_you_mean(str(node.op), _MEANINGS)
        return f"{DOMAIN}.{node.op} is an op of onnxruntime's own that is not known here" + (f": {hint}" if hint else "")
    unknown = sorted(set(node.attrs) - _MEANINGS[node.op].attributes)
    return f"the attribute {unknown[0]!r} of {DOMAIN}.{node.op} is not known here" if unknown else None


def body_of(node: Node, types: Sequence[Type | None], values: Values, opset: int = 0) -> Graph:
    """The op's body for inputs of these types and of these values where constant; `NoBody` with the reason if there is none.

    It is written in this opset, or in the lowest that has all ops that it needs if that is higher."""
    reason = why_unknown(node)
    if reason is not None:
        raise NoBody(reason, where=f"node {node.name!r} ({node.op})")
    meaning = _MEANINGS[str(node.op)]
    return meaning.body(BodyBuilder(node, {"": max(opset, meaning.since)}, types, values))


def why_none(node: Node) -> str | None:
    """The reason for which an op of onnxruntime's with these attributes and inputs has no body; None if it has one, or if that
    depends on unknown types or values of its inputs."""
    types = [None if entry is None else entry.type for entry in node.inputs]
    try:
        body_of(node, types, [None] * len(types))
    except NotYet:
        return None
    except NoBody as error:
        return error.cause
    return None


def result_types(node: Node, types: Sequence[Type | None], values: Values) -> Sequence[Type] | None:
    """The types of the op's results for inputs of these types, if the table has a rule for them."""
    rule = _MEANINGS[str(node.op)].types
    return None if rule is None else rule(BodyBuilder(node, {"": needed_opset(node)}, types, values))
