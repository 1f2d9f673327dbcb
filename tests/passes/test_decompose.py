"""Each row of the decomposition table against ONNX's reference. onnxruntime's ops are in tests/microsoft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.body_builder import BodyBuilder, NoBody
from partita.graph.types import Array, dtype_name
from partita.passes.decompose import decomposed, dynamic_sizes, has_decomposition
from partita.passes.decompose.moves import cast_like
from partita.passes.decompose.onnx_functions import onnx_function, sees_all_keys
from partita.passes.decompose.table import ROWS
from tests.close import assert_close

DRAW = np.random.default_rng(3)


def normal(*shape: int, dtype: Any = "float32") -> Array:
    return DRAW.standard_normal(shape).astype(dtype)


def integers(*shape: int, dtype: Any = "uint8") -> Array:
    return DRAW.integers(0, 100, shape).astype(dtype)


class Const:
    """An input that is constant."""

    def __init__(self, value: Any, dtype: Any = None) -> None:
        self.value = np.asarray(value, dtype)


SCALE, POINT = np.float32(0.05), np.uint8(7)
CASES: list[tuple[str, int, Sequence[Any], Mapping[str, Any]]] = [
    ("Concat", 13, [normal(2, 0), normal(2, 3), normal(2, 4)], {"axis": 1}),
    ("Concat", 4, [normal(2, 0), normal(2, 3)], {"axis": 1}),
    ("Conv", 22, [normal(1, 3, 23), Const(normal(5, 3, 4))], {"strides": [4], "kernel_shape": [4]}),
    ("Conv", 11, [normal(1, 2, 4, 4, 4), Const(normal(6, 2, 2, 2, 2)), normal(6)], {"strides": [2, 2, 2]}),
    ("ConvInteger", 10, [integers(1, 2, 5, 5), integers(3, 2, 2, 2), POINT, np.uint8(9)], {}),
    ("ConvInteger", 10, [integers(1, 2, 5, 5), Const(integers(3, 2, 2, 2) * 2), POINT, Const(np.uint8(9))], {}),
    ("ConvInteger", 10, [integers(1, 2, 5, 5), Const(integers(3, 2, 2, 2) * 2), POINT, Const([3, 250, 7], "uint8")], {}),
    ("ConvInteger", 10, [integers(1, 4, 5, 5), Const(integers(4, 1, 2, 2) * 2), POINT, Const([3, 250, 7, 9], "uint8")],
     {"group": 4}),
    ("ConvInteger", 10, [integers(1, 2, 5), Const(integers(3, 2, 2) * 2), POINT, Const([3, 250, 7], "uint8")], {}),
    ("DequantizeLinear", 21, [integers(4, 6), normal(4, 2), integers(4, 2)], {"axis": 1, "block_size": 3}),
    ("Einsum", 21, [normal(2, 3, 4)], {"equation": "abc->cab"}),
    ("Einsum", 21, [normal(2, 3), normal(3, 4)], {"equation": "ab,bc->ca"}),
    ("Einsum", 12, [normal(2, 3, 4), normal(3, 4, 5)], {"equation": "abc,bcd->ad"}),
    ("Einsum", 12, [normal(2, 3), normal(2, 3)], {"equation": "ab,ab->a"}),
    ("GlobalMaxPool", 1, [normal(2, 3, 4, 5)], {}),
    ("GlobalMaxPool", 21, [normal(2, 3, 4)], {}),
    ("GlobalMaxPool", 21, [normal(2, 3)], {}),
    ("GridSample", 20, [normal(1, 2, 4, 5), normal(1, 3, 2, 2) / 4], {"mode": "nearest"}),
    ("GroupNormalization", 21, [normal(2, 6, 5), normal(6), normal(6)], {"num_groups": 2}),
    ("GroupNormalization", 18, [normal(2, 6, 5), normal(2), normal(2)], {"num_groups": 2}),
    ("Hardmax", 13, [normal(2, 3, 4)], {"axis": 1}),
    ("LayerNormalization", 17, [normal(2, 3, 4), normal(4), normal(4)], {}),
    ("LayerNormalization", 21, [normal(2, 3, 4), normal(3, 4)], {"axis": -2, "epsilon": 0.1}),
    ("MatMulInteger", 10, [integers(3, 4), integers(4, 2), POINT, np.uint8(3)], {}),
    ("MatMulInteger", 10, [integers(3, 4), Const(integers(4, 2) * 2), POINT, Const([3, 250], "uint8")], {}),
    ("MeanVarianceNormalization", 13, [normal(2, 3, 4, 5)], {}),
    ("OneHot", 16, [np.array([[0, -1, 7], [2, 5, -9]]), Const(6), np.array([2, 5], "float32")], {"axis": 1}),
    ("OneHot", 21, [np.array([0, -1, 7]), Const([4]), Const([0, 1], "int32")], {}),
    ("QLinearConv", 10, [integers(1, 2, 5, 5), SCALE, POINT, integers(3, 2, 2, 2), SCALE, POINT, np.float32(0.3), POINT], {}),
    ("QLinearConv", 21, [integers(1, 2, 5, 5), Const(SCALE), POINT, integers(3, 2, 2, 2), Const([0.1, 0.02, 0.3], "float32"),
                         Const([1, 2, 3], "uint8"), np.float32(0.3), POINT, Const([100, 0, -90], "int32")], {}),
    ("QLinearMatMul", 21, [integers(3, 4), SCALE, POINT, integers(4, 2), SCALE, POINT, np.float32(0.1), POINT], {}),
    ("QLinearMatMul", 21, [integers(1, 64) | 128, np.float16(1), POINT, integers(64, 2) | 128, np.float16(1), POINT,
                           np.float16(40000), POINT], {}),
    ("QLinearMatMul", 21, [integers(3, 4), np.float16(0.1), POINT, integers(4, 2), normal(2, dtype="float16") ** 2,
                           integers(2), np.float16(0.5), POINT], {}),
    ("QuantizeLinear", 21, [normal(4, 6), np.abs(normal(4, 2)) / 9, integers(4, 2)], {"axis": 1, "block_size": 3}),
    ("ReduceL1", 18, [normal(3, 4)], {"noop_with_empty_axes": 1}),
    ("ReduceL2", 18, [normal(3, 4)], {"noop_with_empty_axes": 1}),
    ("ReduceLogSum", 18, [np.abs(normal(3, 4))], {"noop_with_empty_axes": 1}),
    ("ReduceLogSumExp", 11, [normal(3, 4)], {"axes": [1], "keepdims": 0}),
    ("ReduceLogSumExp", 18, [integers(3, 4, dtype="int32"), Const([0])], {}),
    ("ReduceSumSquare", 18, [normal(3, 4)], {"noop_with_empty_axes": 1}),
    ("Resize", 19, [normal(1, 2, 5, 4), None, None, Const([1, 2, 7, 6])], {"mode": "linear"}),
    ("Resize", 13, [normal(3, 5), None, Const([1, 0.6], "float32")], {"mode": "cubic"}),
    ("RotaryEmbedding", 23, [normal(2, 3, 4, 8), normal(9, 4), normal(9, 4), integers(2, 4, dtype="int64") % 9], {}),
    ("RotaryEmbedding", 23, [normal(2, 4, 24), normal(2, 4, 3), normal(2, 4, 3)],
     {"num_heads": 3, "rotary_embedding_dim": 6, "interleaved": 1}),
    ("Shrink", 9, [integers(5, dtype="int8")], {"lambd": 9.25, "bias": 0.125}),
    ("TopK", 11, [normal(3, 7), Const([2])], {}),
    ("TopK", 21, [integers(3, 7, dtype="int16"), Const([4])], {"axis": 1, "largest": 0}),
    ("Upsample", 9, [normal(1, 1, 3, 4), Const([1, 1, 2, 2], "float32")], {"mode": "linear"}),
    ("Softmax", 21, [normal(3, 4, dtype="float16")], {}),
    ("ReduceSum", 13, [normal(3, 40, dtype="float16"), Const([1])], {}),
]
"""An op of each row: its opset, the values of its inputs, and its attributes. The last two are of half-precision numbers."""


def by_op(part: Any) -> str:
    """The name of a case: its op's."""
    return part if isinstance(part, str) else ""


def typed(op: str, opset: int, values: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[pt.Graph, pt.Node, list[Array]]:
    """A graph of the op alone, its node, and the values of its inputs."""
    inputs = [
        None if value is None else pt.constant(value.value) if isinstance(value, Const)
        else pt.variable(f"x{i}", dtype_name(np.asarray(value).dtype), np.shape(value))
        for i, value in enumerate(values)
    ]
    node = pt.op(op, *inputs, opset=opset, **attributes)
    fed = [node for node in inputs if node is not None and node.is_variable]
    graph = pt.apply_pass(pt.Graph(list(node.outputs), fed, opsets={"": opset}), "InferShape")
    arrays = [np.asarray(value.value if isinstance(value, Const) else value) for value in values]
    return graph, next(node for node in graph.nodes if node.is_op), arrays


def agree(graph: pt.Graph, body: pt.Graph, arrays: Sequence[Array]) -> None:
    """Both compute the same on the reference."""
    wanted = pt.compile(graph, "reference")(*[arrays[int(one.name[1:])] for one in graph.inputs])
    results = pt.compile(body, "reference")(*[arrays[int(one.name[1:])] for one in body.inputs])
    for result, want in zip(results, wanted, strict=True):
        assert result.dtype == want.dtype
        assert_close(result, want, atol=1e-5)


@pytest.mark.parametrize(("op", "opset", "values", "attributes"), CASES, ids=by_op)
def test_a_body_is_what_its_op_means(op: str, opset: int, values: Sequence[Any], attributes: dict[str, Any]) -> None:
    graph, node, arrays = typed(op, opset, values, attributes)
    body = decomposed(node, graph.opsets)
    assert has_decomposition(node) and body is not None
    agree(graph, body, arrays)


HEADS = [normal(1, 2, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 4)]
PAST = [normal(1, 2, 2, 4), normal(1, 2, 2, 4)]
HIDING = np.array([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 1]], bool)
SEEN: list[tuple[Sequence[Any], Mapping[str, Any]]] = [
    (HEADS, {}),
    (HEADS, {"is_causal": 1}),
    (HEADS, {"is_causal": 0, "scale": 0.3, "softcap": 2.0, "softmax_precision": 1}),
    ([*HEADS, HIDING], {}),
    ([*HEADS, np.log(HIDING + np.float32(1e-30)) * 1e30], {"scale": 0.3}),
    ([*HEADS, None, *PAST], {}),
    ([*HEADS, None, *PAST], {"is_causal": 1}),
    ([*HEADS, np.concatenate([HIDING[:, :2], HIDING], 1), *PAST], {}),
    ([*HEADS, None, None, None, np.array([3])], {}),
    ([one.transpose(0, 2, 1, 3).reshape(1, -1, 8) for one in HEADS], {"q_num_heads": 2, "kv_num_heads": 2}),
]


@pytest.mark.parametrize(("values", "attributes"), SEEN, ids=range(len(SEEN)))
def test_keys_that_attention_hides(values: Sequence[Any], attributes: dict[str, Any]) -> None:
    """A hidden key has no weight. Rows that see no key are 0, also where they are cleared after the product."""
    graph, node, arrays = typed("Attention", 24, values, {"qk_matmul_output_mode": 3, "n_outputs": 4, **attributes})
    *_, weights = pt.compile(graph, "reference")(*[arrays[int(one.name[1:])] for one in graph.inputs])
    assert sees_all_keys(node) == (weights > 0).all()
    graph, node, arrays = typed("Attention", 24, values, attributes)
    body, read = onnx_function(node, graph.opsets)
    assert body is not None
    assert not any(one.op == "MatMul" and one.inputs[0].node.op == "Where" for one in body.nodes)
    (wanted,) = pt.compile(graph, "reference")(*[arrays[int(one.name[1:])] for one in graph.inputs])
    (result,) = pt.compile(body, "reference")(*[arrays[int(name[1:])] for name in read])
    assert_close(result, wanted, atol=1e-5)


RESIZED = {"coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.5}
DYNAMIC: list[tuple[str, Sequence[Any], Mapping[str, Any], Callable[[BodyBuilder], pt.Graph]]] = [
    ("Slice", [normal(3, 7), np.array([5]), np.array([1]), Const([1]), Const([-2])], {},
     lambda b: dynamic_sizes.slice_by_gathers(b, [(0, 1, -2)])),
    ("Pad", [normal(3, 4), np.array([0, 2, 1, 1]), np.float32(7)], {},
     lambda b: dynamic_sizes.pad_by_gathers(b, {0: (0, 2), 1: (1, 3)})),
    ("Pad", [normal(3, 4), np.array([0, 2, 0, 1])], {"mode": "reflect"}, lambda b: dynamic_sizes.pad_by_gathers(b, {1: (1, 3)})),
    ("Tile", [normal(3, 4), np.array([2, 3])], {}, dynamic_sizes.tile_by_expand),
    ("MatMul", [normal(4), normal(2, 4, 3)], {}, dynamic_sizes.vector_product),
    ("MatMul", [normal(4), normal(4)], {}, dynamic_sizes.vector_product),
    ("Conv", [normal(2, 3, 7, 5, 5), Const(normal(4, 3, 3, 2, 2)), Const(normal(4))],
     {"strides": [2, 1, 1], "pads": [1, 0, 1, 1, 0, 0]}, dynamic_sizes.volumes_as_images),
    ("Conv", [normal(2, 3, 7, 5, 5), Const(normal(4, 3, 3, 2, 2))], {}, dynamic_sizes.volumes_as_images),
    ("Conv", [normal(1, 2, 8, 6, 7), Const(normal(4, 2, 3, 2, 2))], {"dilations": [2, 1, 3], "strides": [1, 2, 3]},
     dynamic_sizes.volumes_as_images),
    ("Conv", [normal(2, 3, 4, 5, 5), Const(normal(4, 3, 1, 2, 1)), Const(normal(4))], {"pads": [0, 1, 2, 2, 0, 1]},
     dynamic_sizes.volumes_as_images),
    ("Slice", [normal(3, 7), np.array([0, 1]), np.array([2, 6]), Const([0, 1]), Const([1, 2])], {},
     lambda b: dynamic_sizes.slice_by_gathers(b, [(0, 0, 1), (1, 1, 2)])),
    ("Pad", [normal(3, 4, 2), np.array([1, 2, 0, 0, 1, 3])], {},
     lambda b: dynamic_sizes.pad_by_gathers(b, {0: (0, 3), 1: (1, 4), 2: (2, 5)})),
    ("Pad", [normal(5, 4), np.array([-1, 2, -2, 1])], {"mode": "edge"},
     lambda b: dynamic_sizes.pad_by_gathers(b, {0: (0, 2), 1: (1, 3)})),
    ("Pad", [integers(3, 4), np.array([1, 0, 0, 2])], {}, lambda b: dynamic_sizes.pad_by_gathers(b, {0: (0, 2), 1: (1, 3)})),
    ("Tile", [normal(2, 3, 4), np.array([3, 1, 2])], {}, dynamic_sizes.tile_by_expand),
    ("Tile", [normal(5), np.array([4])], {}, dynamic_sizes.tile_by_expand),
    ("MatMul", [normal(2, 4, 3), normal(3)], {}, dynamic_sizes.vector_product),
    *[("Resize", [normal(1, 2, 5, 4, dtype=dtype), None, Const([1, 1, 1.6, 0.7], "float32")], {**attributes, "mode": mode},
       lambda b: dynamic_sizes.resize_by_gathers(b, [2, 3]))
      for mode, dtype in (("nearest", "float16"), ("linear", "float32"), ("cubic", "float32"), ("linear", "float16"))
      for attributes in (RESIZED, {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})],
    *[("Resize", [normal(1, 2, 5, 4), None, None, np.array([1, 2, 7, 9])], {**RESIZED, "mode": mode},
       lambda b: dynamic_sizes.resize_by_gathers(b, [2, 3])) for mode in dynamic_sizes.TAPS],
    ("CastLike", [normal(3), integers(1, dtype="int32")], {}, cast_like),
]
"""Ops of dynamic sizes, and their bodies."""


@pytest.mark.parametrize(("op", "values", "attributes", "written"), DYNAMIC, ids=by_op)
def test_a_body_for_dynamic_sizes(
    op: str, values: Sequence[Any], attributes: dict[str, Any], written: Callable[[BodyBuilder], pt.Graph]
) -> None:
    graph, node, arrays = typed(op, 21, values, attributes)
    body = written(BodyBuilder(node, graph.opsets))
    agree(graph, body, arrays)
    for inner in (inner for inner in body.nodes if inner.op == "Conv"):
        assert len(inner.attrs["pads"]) == 2 * len(inner.attrs["kernel_shape"])


def test_each_row_is_tried() -> None:
    assert {row.op for row in ROWS} <= {op for op, *_ in CASES}
    for row in ROWS:
        assert row.since <= min(opset for op, opset, *_ in CASES if op == row.op)


OLD = [
    ("Conv", 9, [normal(1, 3, 8), Const(normal(5, 3, 4))], {"strides": [4], "kernel_shape": [4]}),
    ("ReduceLogSumExp", 8, [normal(3, 4)], {"axes": [1]}),
    ("TopK", 10, [normal(3, 7), Const([2])], {}),
    ("ReduceLogSum", 18, [integers(3, 4, dtype="int32")], {"noop_with_empty_axes": 1}),
]
"""Ops of rows whose bodies hold ops that the opset lacks, or that take no such values."""


@pytest.mark.parametrize(("op", "opset", "values", "attributes"), OLD, ids=by_op)
def test_an_op_whose_body_would_not_be_valid_has_none(op: str, opset: int, values: Any, attributes: dict[str, Any]) -> None:
    graph, node, _ = typed(op, opset, values, attributes)
    assert decomposed(node, graph.opsets) is None


def test_a_norm_of_no_dimensions_has_no_body() -> None:
    node = pt.op("LayerNormalization", pt.variable("x", "float32", ()), pt.variable("scale", "float32", ()))
    assert decomposed(node, {"": 21}) is None


@pytest.mark.parametrize(
    ("sizes", "taps", "attributes", "expected"),
    [
        ((60,), (4,), {"strides": [4]}, True),
        ((64,), (4,), {"strides": [4]}, False),
        ((4,), (4,), {"strides": [4]}, True),
        ((15,), (1,), {}, False),
        ((60,), (4,), {"strides": [2]}, False),
        ((60,), (4,), {"strides": [4], "dilations": [2]}, False),
        ((60,), (4,), {"strides": [4], "pads": [0, 4]}, False),
        ((60,), (4,), {"strides": [4], "auto_pad": "SAME_UPPER"}, False),
        ((60,), (4,), {"strides": [4], "group": 2}, False),
        ((8, 8, 8), (2, 2, 2), {"strides": [2, 2, 2]}, True),
        ((8, 8, 8), (2, 2, 2), {"strides": [2, 2, 1]}, False),
        ((8, 8), (2, 2), {"strides": [2, 2]}, False),
    ],
)
def test_few_patches_become_a_product(
    sizes: tuple[int, ...], taps: tuple[int, ...], attributes: dict[str, Any], expected: bool
) -> None:
    weight = normal(4, 2 // attributes.get("group", 1), *taps)
    _, node, _ = typed("Conv", 22, [normal(1, 2, *sizes), Const(weight)], attributes)
    assert has_decomposition(node) is expected


def test_zero_points_per_channel_of_images_of_any_size() -> None:
    x, weight = integers(1, 2, 5, 4), integers(4, 2, 2, 2) * 2
    given, points = pt.variable("x0", "uint8", ("N", 2, "H", "W")), np.array([0, 255, 100, 3], np.uint8)
    node = pt.op("ConvInteger", given, pt.constant(weight), pt.constant(POINT), pt.constant(points))
    graph = pt.apply_pass(pt.Graph([node], [given]), "InferShape")
    body = decomposed(next(node for node in graph.nodes if node.is_op), graph.opsets)
    assert body is not None
    agree(graph, body, [x, weight, POINT, points])


def test_an_absent_input_and_one_that_is_not_constant_are_named() -> None:
    b = BodyBuilder(pt.op("Clip", pt.variable("x"), None, pt.variable("high"), name="clip"), {"": 13})
    with pytest.raises(NoBody, match=r"node 'clip' \(Clip\): its input 1 is absent"):
        b.input(1)
    with pytest.raises(NoBody, match="its input 2 is not constant"):
        b.value(2)
    with pytest.raises(NoBody, match="the type of its input 3 is unknown"):
        b.type(3)
    assert b.optional(1) is None
    with pytest.raises(AttributeError, match="no attribute 'relu'"):
        b.relu(b.input(0))


def test_lists_and_arrays_become_constants() -> None:
    b = BodyBuilder(pt.op("Relu", pt.variable("x", "float32", (2, 3))), {"": 21})
    node = b.Mul(b.Reshape(b.input(0), [0, -1]), np.float32(2)).node
    factor, reshape = node.reads[1].node, node.reads[0].node
    assert factor.value.dtype == np.float32 and reshape.reads[1].node.value.tolist() == [0, -1]
