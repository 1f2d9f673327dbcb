"""FoldConstants: what depends on constants alone is computed now."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, constant, op, register_op, unregister_op, variable
from partita.passes import apply_pass

from .before_after import check, same_values, text, unchanged

FOLD = ["FoldConstants", "EliminateDead"]


def test_a_chain_of_constants() -> None:
    check(
        FOLD,
        """
        graph net(x: float32[3]) -> (y) {
          a = const float32[3] [1.0, 2.0, 3.0]
          b = Neg(a)
          c = Add(a, b) name=sum
          d = Add(c, x)
          y = Relu(d)
        }
        ""","""
        graph net(x: float32[3]) -> (y) {
          c = const float32[3] [0.0, 0.0, 0.0] name=sum
          d = Add(c, x)
          y = Relu(d)
        }
        """,
    )


def test_an_output_may_become_constant_and_keeps_its_name() -> None:
    check(
        FOLD,
        "graph net(x: float32[3]) -> (out=b) { a = const float32[1] [2.0]\n b = Sqrt(a) }",
        "graph net(x: float32[3]) -> (out=b) { b = const float32[1] [1.4142135] }",
    )


def test_several_outputs() -> None:
    check(
        FOLD,
        """
        graph net(x: float32[1]) -> (p, r) {
          a = const float32[2] [3.0, 4.0]
          p, q = Split(a) {axis=0, num_outputs=2} name=parts
          r = Add(q, x)
        }
        ""","""
        graph net(x: float32[1]) -> (p, r) {
          q = const float32[1] [4.0]
          p = const float32[1] [3.0]
          r = Add(q, x)
        }
        """,
    )


def test_shape_arithmetic_folds_on_known_sizes() -> None:
    check(
        FOLD,
        """
        graph net(x: float32[2, 3, 4, 4]) -> (y) {
          s = Shape(x)
          zero = const int64[] 0
          first = const int64[1] [0]
          rest = const int64[1] [-1]
          n = Gather(s, zero)
          n1 = Unsqueeze(n, first)
          target = Concat(n1, rest) {axis=0}
          y = Reshape(x, target)
        }
        ""","""
        graph net(x: float32[2, 3, 4, 4]) -> (y) {
          target = const int64[2] [2, -1]
          y = Reshape(x, target)
        }
        """,
    )


def test_sizes_are_computed_with_although_others_are_symbols() -> None:
    g = text(
        """
        graph net(x: float32[N, 6, 8]) -> (half, is_open, two, three, wrapped, other) {
          s = Shape(x)
          two = const int64[] 2
          halves = Div(s, two)
          one = const int64[] 1
          half = Gather(halves, one)
          minus = const int64[1] [-1]
          is_open = Equal(s, minus)
          zero = const int64[] 0
          n = Gather(s, zero)
          none = Sub(n, n)
          three = Add(none, one)
          large = const int64[1] [9223372036854775807]
          sums = Add(s, large)
          wrapped = Gather(sums, one)
          other = Add(n, two)
        }
        """,
        21,
    )
    folded = apply_pass(g, ["InferShape", *FOLD])
    known = {entry.name: entry.node.value for entry in folded.outputs if entry.node.value is not None}
    assert {name: (str(value.dtype), value.tolist()) for name, value in known.items()} == {
        "half": ("int64", 3), "is_open": ("bool", [False] * 3), "two": ("int64", 2), "three": ("int64", 1),
    }


def test_known_elements_fold_although_others_are_symbols() -> None:
    check(
        FOLD,
        """
        graph net(x: float32[N, 3, H, 8]) -> (a, b, c, d, e) {
          s = Shape(x)
          one = const int64[] 1
          a = Gather(s, one)
          start = const int64[1] [3]
          end = const int64[1] [9]
          b = Slice(s, start, end)
          c = Shape(x) {start=1, end=2}
          s2 = Concat(s, b) {axis=0}
          from_end = const int64[2] [-1, 1]
          d = Gather(s2, from_end)
          e = Size(x)
        }
        ""","""
        graph net(x: float32[N, 3, H, 8]) -> (a, b, c, d, e) {
          a = const int64[] 3
          b = const int64[1] [8]
          c = const int64[1] [3]
          d = const int64[2] [8, 3]
          e = Size(x)
        }
        """,
    )


def test_shapes_given_to_inference_reach_the_arithmetic() -> None:
    check(
        ["InferShape", *FOLD],
        "graph net(x: float32[N, 3]) -> (s) { s = Shape(x) }",
        "graph net(x: float32[5, 3]) -> (s) { s = const int64[2] [5, 3] }",
        shapes={"x": (5, 3)},
    )


@pytest.mark.parametrize(
    "statement",
    [
        "y = RandomNormalLike(a)",
        "y = Bernoulli(a)",
        "y = Dropout(a, half, yes)",
        "y = my::Unheard(a)",
        "y = SequenceConstruct(a, a)",
        "y = Gather(a, far)",
    ],
)
def test_what_stays(statement: str) -> None:
    unchanged(
        "FoldConstants",
        f"""
        graph net(x: float32[1]) -> (y) {{
          a = const float32[2] [0.5, 0.25]
          half = const float32[] 0.5
          yes = const bool[] true
          far = const int64[1] [7]
          {statement}
        }}
        """,
        opset="21, my 1",
    )


@pytest.mark.parametrize(
    ("body", "bound", "values"),
    [
        ("y = NonZero(c)", 8 * 6 * 2, [[0, 0, 1], [0, 2, 1]]),
        ("y = NonZero(d)", 8 * 2 * 3, [[0, 0], [0, 1], [0, 0]]),
        ("y = Compress(c, t) {axis=1}", 8 * (6 + 3) * 2, [[1, 5], [0, 0]]),
        ("y = Unique(c)", 8 * 6 * 2, [0, 1, 2, 5]),
    ],
)
def test_results_whose_sizes_depend_on_values_are_bounded_by_their_operands(body: str, bound: int, values: Any) -> None:
    before = f"""graph g() -> (y) {{
      c = const float32[2, 3] [1, 0, 5, 0, 2, 0]
      d = const float32[1, 2, 1] [1, 2]
      t = const bool[3] [true, false, true]
      {body}
    }}"""
    assert apply_pass(text(before), "FoldConstants", growth=1000, limit=bound)["y"].value.tolist() == values
    assert not apply_pass(text(before), "FoldConstants", growth=1000, limit=bound - 1)["y"].is_constant


def test_the_size_limits() -> None:
    before = """
    graph net(x: float32[1]) -> (y, z) {
      s = const int64[1] [1000000]
      y = ConstantOfShape(s)
      a = const float32[1] [1.0]
      z = Expand(a, s)
    }
    """
    unchanged("FoldConstants", before)
    result = apply_pass(text(before), "FoldConstants", growth=5_000_000)
    assert all(result[name].is_constant and result[name].value.shape == (1000000,) for name in "yz")
    assert not apply_pass(text(before), "FoldConstants", growth=5_000_000, limit=3_999_999)["y"].is_constant


def test_huge_results_are_never_computed() -> None:
    unchanged(
        "FoldConstants",
        """
        graph net(x: float32[1]) -> (y, z) {
          s = const int64[3] [1000000, 1000000, 1000000]
          y = ConstantOfShape(s)
          zero = const int64[] 0
          most = const int64[] 999999999999
          one = const int64[] 1
          z = Range(zero, most, one)
        }
        """,
    )


def test_a_large_constant_folds_where_it_does_not_grow() -> None:
    g = Graph([op("Add", op("Transpose", constant(np.ones((1000, 1000), np.float32), "w"), name="t"), variable("x"), name="y")])
    result = apply_pass(g, FOLD)
    assert result["t"].is_constant and result["t"].value.flags.c_contiguous and len(result) == 3


def test_a_constant_condition_decides_an_if() -> None:
    check(
        FOLD,
        """
        graph net(x: float32[2]) -> (y) {
          c = const bool[] true
          a = Neg(x)
          y0 = If(c) {
            then_branch=graph t(q: float32[2]) -> (r) { one = const float32[1] [1.0]
              s = Add(q, one)
              r = Relu(s) },
            else_branch=graph e(q: float32[2]) -> (b) { b = Neg(q) name=other },
          } captures(a) name=choice
          y = Abs(y0)
        }
        ""","""
        graph net(x: float32[2]) -> (y) {
          a = Neg(x)
          one = const float32[1] [1.0]
          s = Add(a, one)
          r = Relu(s)
          y = Abs(r)
        }
        """,
    )


def test_bodies_fold_too() -> None:
    check(
        FOLD,
        """
        graph net(x: float32[2], c: bool[]) -> (y) {
          y = If(c) {
            then_branch=graph t(q: float32[2]) -> (r) { one = const float32[1] [1.0]
              two = Add(one, one)
              r = Add(q, two) },
            else_branch=graph e(q: float32[2]) -> (b) { b = Neg(q) },
          } captures(x)
        }
        ""","""
        graph net(x: float32[2], c: bool[]) -> (y) {
          y = If(c) {
            then_branch=graph t(q: float32[2]) -> (r) { two = const float32[1] [2.0]
              r = Add(q, two) },
            else_branch=graph e(q: float32[2]) -> (b) { b = Neg(q) },
          } captures(x)
        }
        """,
    )


def test_constants_go_into_the_bodies_that_capture_them() -> None:
    check(
        FOLD,
        """
        graph net(x: float32[2], c: bool[]) -> (y) {
          k = const int64[1] [2]
          minus = Neg(k)
          y = If(c) {
            then_branch=graph t(q: float32[2], z: int64[1]) -> (a) { two = Neg(z)
              a = Reshape(q, two) },
            else_branch=graph e(q: float32[2], z: int64[1]) -> (b) { b = Neg(q) },
          } captures(x, minus)
        }
        ""","""
        graph net(x: float32[2], c: bool[]) -> (y) {
          y = If(c) {
            then_branch=graph t(q: float32[2]) -> (a) { two = const int64[1] [2]
              a = Reshape(q, two) },
            else_branch=graph e(q: float32[2]) -> (b) { b = Neg(q) },
          } captures(x)
        }
        """,
    )


def test_an_op_of_the_users_folds_by_its_own_meaning() -> None:
    register_op("Twice", "my", shape=lambda types, attrs: types[0], numpy=lambda x: x * 2)
    try:
        check(
            FOLD,
            "graph net(x: float32[2]) -> (y) { a = const float32[1] [3.0]\n b = my::Twice(a)\n y = Add(b, x) }",
            "graph net(x: float32[2]) -> (y) { b = const float32[1] [6.0]\n y = Add(b, x) }",
            opset="21, my 1",
        )
    finally:
        unregister_op("Twice", "my")


def test_old_opsets_fold_by_their_own_rules() -> None:
    # Up to opset 12 Softmax works on all axes from the given one on.
    before = text(
        "graph net(x: float32[2, 2]) -> (y) { a = const float32[2, 2] [1, 2, 3, 4]\n s = Softmax(a) {axis=0}\n y = Add(s, x) }", 9
    )
    result = apply_pass(before, FOLD)
    assert result["s"].is_constant and abs(result["s"].value.sum() - 1) < 1e-6
    same_values(before, result, [np.zeros((2, 2), np.float32)])


def test_sizes_beyond_int64_stay() -> None:
    unchanged(FOLD, "graph net(x: float32[1099511627776, 1099511627776]) -> (y) { y = Size(x) }")


def test_a_pattern_that_may_take_for_ever_is_not_tried() -> None:
    text_of = constant(np.array(["a" * 40 + "b"], object), "t")
    g = Graph([op("RegexFullMatch", text_of, name="y", pattern="(a+)+c")])
    assert apply_pass(g, "Default")["y"].op == "RegexFullMatch"


IMAGE = np.ones((1, 1, 4, 4), np.float32)
REGIONS = np.array([[0, 0, 1e9, 1e9]], np.float32)
BOXES = np.zeros((1, 50_000, 4), np.float32)
LOOPING = {
    "nodes_nodeids": [0, 1], "nodes_treeids": [0, 0], "nodes_truenodeids": [1, 0], "nodes_falsenodeids": [1, 0],
    "nodes_featureids": [0, 0], "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ"], "nodes_values": [0.0, 0.0], "target_ids": [0],
    "target_nodeids": [1], "target_treeids": [0], "target_weights": [1.0], "n_targets": 1,
}


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"),
    [
        ("AveragePool", [IMAGE], {"kernel_shape": [2**14] * 2, "pads": [2**13] * 4}),
        ("MaxPool", [IMAGE], {"kernel_shape": [2**15] * 2, "pads": [2**15 - 1] * 4, "strides": [2**15] * 2}),
        ("Conv", [IMAGE, np.ones((1, 1, 2, 2), np.float32)], {"pads": [2**15] * 4, "strides": [2**15] * 2}),
        ("Einsum", [np.ones((32, 32), np.float32)] * 5, {"equation": "ab,cd,ef,gh,ij->"}),
        ("GRU", [np.ones(s, np.float32) for s in ((100_000, 1, 1), (1, 3, 1), (1, 3, 1))], {"hidden_size": 1}),
        ("LRN", [IMAGE], {"size": 2**31 - 1}),
        ("RoiAlign", [IMAGE, REGIONS, np.array([0])], {"output_height": 1, "output_width": 1}),
        ("NonMaxSuppression", [BOXES, BOXES[:, None, :, 0], np.array(2**60)], {}),
        ("ai.onnx.ml.TreeEnsembleRegressor", [np.ones((1, 1), np.float32)], LOOPING),
    ],
)
def test_what_would_take_long_is_left_to_a_device(name: str, inputs: list[np.ndarray], attributes: dict[str, object]) -> None:
    domain, _, kind = name.rpartition(".")
    node = op(kind, *map(constant, inputs), domain=domain, **attributes)
    opsets = {"": 21, "ai.onnx.ml": 3}
    assert [n.op for n in apply_pass(Graph([node[0]], opsets=opsets), "FoldConstants").nodes if n.is_op] == [kind]


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize(
    ("ends", "expected"), [((0, 6, 1), range(6)), ((5, -1, -2), (5, 3, 1)), ((3, 3, 1), ()), ((0, 1, 0), None)]
)
def test_a_range_of_tensors_of_one_element(shape: tuple[int, ...], ends: tuple[int, ...], expected: Any) -> None:
    """ONNX's inference types scalars alone, and its own function of AffineGrid reads such tensors."""
    numbers = op("Range", *[constant(np.full(shape, end)) for end in ends], name="numbers")
    result = apply_pass(Graph([op("Identity", numbers)]), "FoldConstants")
    value = result.outputs[0].node.value
    assert (None if value is None else value.tolist()) == (None if expected is None else list(expected))
