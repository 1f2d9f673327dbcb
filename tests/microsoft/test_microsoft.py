"""onnxruntime's own ops on `reference` and `cpu`, against onnxruntime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import onnx
import pytest

import partita as pt
from partita.graph.microsoft.table import MEANINGS
from partita.graph.types import numpy_dtype
from tests.microsoft.nodes import ALL, GROUPED, MASKED, RANDOM, SHARED, Case

Array = np.ndarray[Any, Any]


def _theirs(model: onnx.ModelProto, feeds: dict[str, Array]) -> Sequence[Array]:
    """onnxruntime's results, the graph run as it stands."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def _agree(results: Sequence[Array], wanted: Sequence[Array]) -> None:
    """Integers by one step at most, since either may multiply by two scales or by their product; numbers by rounding."""
    for result, want in zip(results, wanted, strict=True):
        assert (result.dtype, result.shape) == (want.dtype, want.shape)
        a, b = result.astype(np.float64), want.astype(np.float64)
        limit = 1 if want.dtype.kind in "iu" else 2e-6 * max(1.0, np.abs(b).max())
        assert np.abs(a - b).max() <= limit
        assert want.dtype.kind not in "iu" or (a != b).mean() <= 0.05


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.op}-{case.opset}")
def test_reference_computes_what_onnxruntime_computes(case: Case):
    graph = pt.load(case.model())
    _agree(list(pt.compile(graph, "reference")(case.feeds)), _theirs(case.model(), case.feeds))


def every_other(cases: list[Case]) -> Iterator[Any]:
    """The cases, every other one of an op slow."""
    seen: Counter[str] = Counter()
    for case in cases:
        yield pytest.param(case, marks=pytest.mark.slow if seen[case.op] % 2 else ())
        seen[case.op] += 1


@pytest.mark.parametrize("case", list(every_other(ALL)), ids=lambda case: f"{case.op}-{case.opset}")
def test_cpu_computes_it_by_kernels_of_onnx_s_ops(case: Case):
    model = pt.compile(pt.load(case.model()), "cpu")
    _agree(list(model(case.feeds)), _theirs(case.model(), case.feeds))
    schedules = [kernel.schedule for kernel in model.kernels()]
    assert not case.schedule or case.schedule in schedules


ROUNDING = [case for case in ALL if case.op.startswith(("QLinear", "QGemm", "DynamicQuantize"))]
"""Ops that openvino takes, and rounds in another way."""


@pytest.mark.parametrize("case", ROUNDING, ids=lambda case: f"{case.op}-{case.opset}")
def test_openvino_is_not_asked_for_what_it_rounds_otherwise(case: Case):
    pytest.importorskip("openvino")
    graph = pt.load(case.model())
    placement = pt.query(graph, "HETERO:openvino,reference")
    own = [node.name for node in graph.nodes if node.op == case.op]
    assert {placement[name] for name in own} == {"reference"}
    assert "rounds differently from onnxruntime" in placement.why(own[0]) or case.op == "QGemm"
    _agree(list(pt.compile(graph, "HETERO:openvino,reference")(case.feeds)), _theirs(case.model(), case.feeds))


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.op}-{case.opset}")
def test_types_are_inferred(case: Case):
    graph = pt.apply_pass(pt.load(case.model()), "InferShape")
    results = list(pt.compile(graph, "reference")(case.feeds))
    for entry, result in zip(graph.outputs, results, strict=True):
        assert entry.type is not None
        assert (entry.type.dtype, entry.type.shape) == (result.dtype.name, result.shape)


def test_every_op_is_tried():
    rounding = {"QuantizeLinear", "DequantizeLinear"}
    here = {"DynamicQuantizeLSTM", "QLinearReduceMean", "TransposeMatMul", "GatherBlockQuantized"} | rounding
    assert {case.op for case in ALL} | here == set(MEANINGS)


def test_a_mean_of_integers_which_onnxruntime_does_not_run():
    image = RANDOM.integers(0, 256, (1, 3, 4, 4)).astype(np.uint8)
    scaling = (np.array(0.1, np.float32),), (np.array(20, np.uint8),)
    case = Case("QLinearReduceMean", [image, *scaling, *scaling], {"axes": [2, 3]})
    for device in ("reference", "cpu"):
        (result,) = pt.compile(pt.load(case.model()), device)(case.feeds)
        assert np.abs(result.reshape(3) - image.astype(np.float64).mean((0, 2, 3))).max() <= 0.5001


@pytest.mark.parametrize(("direction", "gates", "kind"), [("forward", False, np.int8), ("bidirectional", True, np.uint8)])
def test_an_lstm_of_bytes_is_near_onnxruntime_s_which_rounds_the_state_too(direction: str, gates: bool, kind: Any):
    count, depth, size = 2 if direction == "bidirectional" else 1, 6, 8
    random, low = np.random.default_rng(5), np.iinfo(kind).min
    spare = 1 if kind is np.int8 else 0  # With AVX2 alone onnxruntime lets sums of two products of 8 bits overflow.
    stored = [random.integers(low, low + 256, (count, rows, 4 * size)).astype(kind) >> spare for rows in (depth, size)]
    shape = (count, 4 * size) if gates else (count,)
    scaling = [(random.uniform(0.003, 0.006, shape).astype("f"), np.full(shape, low + 128, kind)) for _ in stored]
    numbers = [random.standard_normal(given).astype("f") for given in ((5, 3, depth), (count, 8 * size), (count, 3, size))]
    bias = (numbers[1] * np.float32(0.1),)
    operands = [numbers[0], *((one,) for one in stored), bias, None, numbers[2], numbers[2] / 2, None]
    parts = [(one,) for pair in scaling for one in pair]
    case = Case("DynamicQuantizeLSTM", [*operands, *parts], {"hidden_size": size, "direction": direction}, 3)
    wanted = _theirs(case.model(), case.feeds)
    for device in ("reference", "cpu"):
        results = list(pt.compile(pt.load(case.model()), device)(case.feeds))
        assert [r.shape for r in results] == [want.shape for want in wanted]
        assert max(np.abs(r - want).max() for r, want in zip(results, wanted, strict=True)) <= 0.03
    assert np.abs(wanted[0]).max() > 0.2


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("Attention", [np.ones((1, 2, 4), "f"), (np.ones((4, 12), "f"),)], {"num_heads": 2, "do_rotary": 1}),
         "its attribute do_rotary is 1; only 0 is supported"),
        (Case("MultiHeadAttention", [np.ones((1, 2, 2, 3, 4), "f")], {"num_heads": 2}),
         "queries, keys and values in one value are not supported"),
        (Case("Attention", [np.ones((1, 2, 4), "f"), (np.ones((4, 12), "f"),), None, np.ones((1, 1, 8, 8), np.int32)],
              {"num_heads": 2}), "a mask of 4 dimensions is not supported"),
        (Case("Attention", [np.ones((1, 2, 4), "f"), (np.ones((4, 12), "f"),)], {"num_heads": 0}),
         "its attribute num_heads is 0, and at least 1 is needed"),
        (Case("Attention", [np.ones((1, 2, 4), "f"), (np.ones((4, 12), "f"),)], {}),
         "its attribute num_heads is 0, and at least 1 is needed"),
        (Case("MultiHeadAttention", [np.ones((1, 2, 4), "f")] * 3, {}),
         "its attribute num_heads is 0, and at least 1 is needed"),
        (Case("MultiHeadAttention", [np.ones((1, 2, 5), "f")] * 3, {"num_heads": 2}),
         "rows of 5 numbers cannot be divided into 2 heads"),
        (Case("MultiHeadAttention", [np.ones((1, 2, 1), "f")] * 3, {"num_heads": 2}),
         "rows of 1 numbers cannot be divided into 2 heads"),
        (Case("RotaryEmbedding", [np.ones((1, 2, 4), "f"), np.zeros(1, np.int64), *[np.ones((8, 0), "f")] * 2], {}),
         "rows of 4 numbers cannot be divided into heads of 0"),
        (Case("RotaryEmbedding", [np.ones((1, 2, 4), "f"), np.zeros(1, np.int64), *[np.ones((8, 1), "f")] * 2], {"num_heads": 3}),
         "rows of 4 numbers cannot be divided into 3 heads"),
    ],
)
def test_attention_of_other_forms_is_refused_by_name(case: Case, reason: str):
    with pytest.raises(pt.PartitaError, match=reason):
        pt.compile(pt.load(case.model()), "reference")(case.feeds)


@pytest.mark.parametrize(
    ("inputs", "attributes", "reason"),
    [([None] * 5 + [np.ones(1, "f")], {}, "its input 12 is not supported"),
     ([], {"qk_output": 1}, "its attribute qk_output is 1; only 0 is supported"),
     ([], {"k_quant_type": "PER_TENSOR"}, "a cache of integers is not supported")],
)
def test_what_is_not_known_of_an_op_is_said_when_compiling(
    inputs: Sequence[Array | None], attributes: dict[str, Any], reason: str
):
    case = GROUPED[3]
    other = attrs.evolve(case, inputs=[*case.inputs, *inputs], attributes={**case.attributes, **attributes})
    with pytest.raises(pt.PartitaError, match=f"cpu: TVM has no op com.microsoft.GroupQueryAttention: {reason}"):
        pt.compile(pt.load(other.model()), "cpu")
    with pytest.raises(pt.NotSupported, match=reason):
        pt.compile(pt.load(other.model()), "reference")


@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (1, 4), (2, 1), (2, 4)])
def test_a_bias_of_grouped_heads_is_shared_or_their_own(batch: int, heads: int):
    given = [RANDOM.standard_normal((2, 1, width)).astype(np.float32) for width in (64, 32, 32)]
    caches = [RANDOM.standard_normal((2, 2, 6, 16)).astype(np.float32) for _ in range(2)]
    ends, bias = np.array([6, 6], np.int32), RANDOM.standard_normal((batch, heads, 1, 7)).astype(np.float32)
    inputs = [*given, *caches, ends, np.array(7, np.int32), None, None, None, bias]
    case = Case("GroupQueryAttention", inputs, {"num_heads": 4, "kv_num_heads": 2}, 3)
    _agree(list(pt.compile(pt.load(case.model()), "reference")(case.feeds)), _theirs(case.model(), case.feeds))


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_grouped_heads_of_halves(device: str):
    """Within what halves round, as after a product and a Softmax."""
    case = next(case for case in GROUPED if "softcap" in case.attributes)
    halves = [given.astype(np.float16) if given.dtype == np.float32 else given for given in case.inputs]
    case = attrs.evolve(case, inputs=halves)
    wanted = _theirs(case.model(), case.feeds)
    for result, want in zip(pt.compile(pt.load(case.model()), device)(case.feeds), wanted, strict=True):
        assert (result.dtype, result.shape) == (np.float16, want.shape)
        assert np.abs(result.astype("f") - want.astype("f")).max() <= 4e-3


def test_a_cache_whose_past_and_present_share_a_buffer_is_an_error():
    """Its present has another length in onnxruntime; what lies in it there would be elsewhere here."""
    assert _theirs(SHARED.model(), SHARED.feeds)[1].shape == SHARED.feeds["i3"].shape
    for device in ("reference", "cpu"):
        with pytest.raises(pt.PartitaError, match="index"):
            pt.compile(pt.load(SHARED.model()), device)(SHARED.feeds)


def test_attention_without_a_bias_which_ends_the_process_in_onnxruntime():
    random = np.random.default_rng(3)
    case = Case("Attention", [random.random((2, 5, 16)).astype("f"), (random.random((16, 24)).astype("f"),)], {"num_heads": 2})
    graph = pt.load(case.model())
    placement = pt.query(graph, "HETERO:onnxruntime,reference")
    assert placement["node"] == "reference"
    assert "reads the bias of its own Attention where there is none" in placement.why("node")
    _agree(list(pt.compile(graph, "cpu")(case.feeds)), list(pt.compile(graph, "reference")(case.feeds)))


def test_an_lstm_of_bytes_with_scales_of_another_size():
    stored = [(np.ones((1, rows, 32), np.uint8),) for rows in (6, 8)]
    scaling = [(np.ones((1, 3), "f"),), (np.zeros((1, 3), np.uint8),)] * 2
    case = Case("DynamicQuantizeLSTM", [np.ones((5, 3, 6), "f"), *stored, *[None] * 5, *scaling], {"hidden_size": 8})
    with pytest.raises(pt.PartitaError, match="its input 8 is neither one number for each direction nor one for each gate"):
        pt.compile(pt.load(case.model()), "reference")(case.feeds)


def test_16_bit_activations_as_the_quantizer_writes_them_below_opset_21():
    numbers = RANDOM.standard_normal((2, 8)).astype(np.float32)
    scaling = (np.array(1e-4, np.float32),), (np.array(30000, np.uint16),)
    quantized = Case("QuantizeLinear", [numbers, *scaling])
    (integers,) = pt.compile(pt.load(quantized.model()), "reference")(quantized.feeds)
    _agree([integers], _theirs(quantized.model(), quantized.feeds))
    back = Case("DequantizeLinear", [integers, *scaling])
    for device in ("reference", "cpu"):
        _agree(list(pt.compile(pt.load(back.model()), device)(back.feeds)), _theirs(back.model(), back.feeds))


@pytest.mark.parametrize("with_points", [False, True])
@pytest.mark.parametrize(
    ("kind", "bits", "axis"),
    [("uint8", 4, 1), ("uint8", 8, 1), ("uint8", 4, -1), ("uint4", 4, 1), ("int4", 4, 1), ("int4", 4, 0)],
)
def test_rows_of_a_table_in_blocks(kind: str, bits: int, axis: int, with_points: bool):
    """Three blocks a row, so that the last byte of packed points holds one."""
    packed = bits == 4 and kind == "uint8"
    shape, blocks = ((20, 96), (20, 3)) if axis else ((96, 20), (3, 20))
    low, high = (-8, 8) if kind == "int4" else (0, 16 if kind == "uint4" else 256)
    table = RANDOM.integers(low, high, (20, 48) if packed else shape).astype(numpy_dtype(kind))
    points = RANDOM.integers(low, high, (20, 2) if packed else blocks).astype(numpy_dtype(kind))
    rows, scales = RANDOM.integers(0, 20, (2, 3)), RANDOM.uniform(0.01, 0.02, blocks).astype(np.float32)
    sizes = {"block_size": 32, "gather_axis": 0, "quantize_axis": axis, "bits": bits}
    inputs = [(table,), rows, (scales,), *[(points,)] * with_points]
    case = Case("GatherBlockQuantized", inputs, sizes, opset=21)
    for device in ("reference", "cpu"):
        _agree(list(pt.compile(pt.load(case.model()), device)(case.feeds)), _theirs(case.model(), case.feeds))


def test_an_op_of_that_domain_that_is_not_known_says_so():
    case = Case("MurmurHash3", [np.array([1, 2], np.int32)])
    with pytest.raises(pt.PartitaError, match=r"com.microsoft.MurmurHash3 is an op of onnxruntime that is not supported"):
        pt.compile(pt.load(case.model()), "reference")


def test_an_attribute_that_is_not_known_is_not_passed_over():
    case = Case("Gelu", [RANDOM.standard_normal((2, 2)).astype(np.float32)], {"sharpness": 2.0})
    with pytest.raises(pt.PartitaError, match=r"the attribute 'sharpness' of com.microsoft.Gelu is not supported"):
        pt.compile(pt.load(case.model()), "reference")


def test_weights_of_other_widths_are_refused_by_name():
    weights = (np.ones((4, 1, 8), np.uint8),), (np.ones(4, np.float32),)
    case = Case("MatMulNBits", [np.ones((1, 32), np.float32), *weights], {"K": 32, "N": 4, "bits": 2, "block_size": 32})
    with pytest.raises(pt.PartitaError, match="its weights have 2 bits; 4 and 8 are supported"):
        pt.compile(pt.load(case.model()), "reference")(case.feeds)


@pytest.mark.parametrize(
    ("weights", "more", "reason"),
    [
        ("int8", [], "its packed integers are int8, and uint8 is known"),
        ("uint8", [("p", "uint8", 3)], "its attributes and inputs do not go together"),
        ("uint8", [("p", "uint8", 32)], "its zero points are not one for each of 2 blocks"),
        ("uint8", [("p", "uint8", 4), ("g", "int32", 1)], "its input 4 does not have one of 2 blocks for each index"),
    ],
)
def test_weights_whose_parts_do_not_go_together(weights: str, more: list[tuple[str, str, int]], reason: str):
    x = pt.variable("x", "float32", (2, 32))
    parts = [pt.constant(np.ones((4, 2, 8), weights)), pt.constant(np.ones(8, "float32"))]
    parts += [pt.constant(np.ones(count, dtype), name=name) for name, dtype, count in more]
    attributes = {"K": 32, "N": 4, "bits": 4, "block_size": 16}
    graph = pt.Graph([pt.op("MatMulNBits", x, *parts, domain="com.microsoft", **attributes)])
    with pytest.raises(pt.PartitaError, match=reason):
        pt.compile(graph, "reference")(np.ones((2, 32), "float32"))


def test_a_table_has_the_axis_of_its_blocks():
    parts = pt.constant(np.ones((4, 8), "uint8")), pt.variable("i", "int64", (1,)), pt.constant(np.ones((4, 1), "float32"))
    node = pt.op("GatherBlockQuantized", *parts, domain="com.microsoft", quantize_axis=3, block_size=16)
    with pytest.raises(pt.PartitaError, match="its quantize_axis is 3, and the table has 2 dimensions"):
        pt.compile(pt.Graph([node]), "reference")(np.zeros(1, "int64"))


def test_a_user_s_own_op_of_that_name_wins():
    case = Case("QuickGelu", [np.ones((2, 2), np.float32)])
    pt.register_op("QuickGelu", "com.microsoft", attributes={"alpha": 1.0}, numpy=lambda x, alpha: x + 1)
    try:
        (result,) = pt.compile(pt.load(case.model()), "reference")(case.feeds)
        assert (result == 2).all()
    finally:
        pt.unregister_op("QuickGelu", "com.microsoft")


@pytest.mark.parametrize("case", MASKED[2:], ids=lambda case: case.op)
def test_the_length_of_a_buffer_that_comes_with_the_call(case: Case):
    inputs = [given[0] if isinstance(given, tuple) else given for given in case.inputs]
    case = attrs.evolve(case, inputs=inputs)
    _agree(list(pt.compile(pt.load(case.model()), "HETERO:cpu,reference")(case.feeds)), _theirs(case.model(), case.feeds))


def test_a_buffer_that_is_full_is_an_error():
    case = attrs.evolve(MASKED[3], inputs=[(np.array([6], np.int32),) if i == 7 else x for i, x in enumerate(MASKED[3].inputs)])
    for device in ("reference", "cpu"):
        with pytest.raises(pt.PartitaError):
            pt.compile(pt.load(case.model()), device)(case.feeds)


@pytest.mark.parametrize("scores", [MASKED[0], MASKED[3]], ids=["another sequence", "buffer"])
def test_the_scores_of_one_token(scores: Case):
    case = attrs.evolve(scores, attributes={**scores.attributes, "output_qk": 1}, outputs=4)
    model = case.model()
    if scores is MASKED[0]:
        model.graph.node[0].output[1] = model.graph.node[0].output[2] = ""
        del model.graph.output[1:3]
    model.graph.output[-1].type.tensor_type.elem_type = 1
    _agree(list(pt.compile(pt.load(model), "reference")(case.feeds)), _theirs(model, case.feeds))


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("op", ["SkipSimplifiedLayerNormalization", "SkipLayerNormalization"])
def test_norms_of_halves_whose_squares_are_none(op: str, device: str):
    """As optimized decoders have them: the second and the third result are not asked for, and have no name."""
    random = np.random.default_rng(7)
    inputs = [(random.standard_normal((1, 2, 8)) * 300).astype(np.float16) for _ in range(2)]
    case = Case(op, [*inputs, (np.ones(8, np.float16),)], {"epsilon": 1e-5}, 4)
    model = case.model()
    model.graph.node[0].output[1] = model.graph.node[0].output[2] = ""
    del model.graph.output[1:3]
    compiled = pt.compile(pt.load(model), device)
    for result, want in zip(compiled(case.feeds), _theirs(model, case.feeds), strict=True):
        assert result.dtype == np.float16
        np.testing.assert_allclose(result.astype("f"), want.astype("f"), rtol=2e-3)
    assert device == "reference" or [kernel.schedule for kernel in compiled.kernels()] == ["rows"]


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_buffer_holds_what_a_cache_that_grows_holds(device: str, rows: int):
    random = np.random.default_rng(9)
    new = [random.standard_normal((2, rows, 8)).astype("f") for _ in range(3)]
    buffer = [random.standard_normal((2, 2, 6, 4)).astype("f") for _ in range(2)]
    attributes = {"num_heads": 2, "unidirectional": 1}
    length = (np.array([3], np.int32),)
    in_buffer = Case("MultiHeadAttention", [*new, None, None, None, *buffer, length], attributes, 3)
    growing = Case("MultiHeadAttention", [*new, None, None, None, *(part[:, :, :3].copy() for part in buffer)], attributes, 3)
    wanted = list(pt.compile(pt.load(growing.model()), "reference")(growing.feeds))
    model = in_buffer.model()
    if device == "reference":
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "rows"
    results = list(pt.compile(pt.load(model), device)(in_buffer.feeds))
    _agree([results[0], *(part[:, :, : 3 + rows] for part in results[1:])], wanted)
    for part, old in zip(results[1:], buffer, strict=True):
        np.testing.assert_array_equal(part[:, :, 3 + rows :], old[:, :, 3 + rows :])


@pytest.mark.parametrize("device", ["cpu", "onnxruntime", "reference"])
@pytest.mark.parametrize("sizes", [(0, 3), (2, 0)])
@pytest.mark.thinned(2)
def test_attention_of_nothing(device: str, sizes: tuple[int, int]):
    """Its heads were cut by a Reshape that left their size open, which an array of nothing does not tell."""
    x = pt.variable("x", "float32", ("B", "T", 16))
    y = pt.op("MultiHeadAttention", x, x, x, domain="com.microsoft", num_heads=2)
    weights = pt.constant(np.ones((16, 48), np.float32)), pt.constant(np.ones(48, np.float32))
    z = pt.op("Attention", x, *weights, domain="com.microsoft", num_heads=2)
    graph = pt.Graph([y, z], [x], opsets={"": 21, "com.microsoft": 1})
    assert [result.shape for result in pt.compile(graph, device)(np.zeros((*sizes, 16), np.float32))] == [(*sizes, 16)] * 2
