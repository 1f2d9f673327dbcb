"""MergeCommon: what is computed twice from the same values is computed once."""

from __future__ import annotations

import numpy as np
import pytest

from partita.graph import Graph, call, constant, op, variable
from partita.passes import apply_pass

from .before_after import check, unchanged


def test_equal_nodes_and_constants_become_one() -> None:
    check(
        "MergeCommon",
        """
        graph net(x: float32[2]) -> (e, again=b) {
          a = Relu(x)
          b = Relu(x)
          one = const float32[1] [1.0]
          eins = const float32[1] [1.0]
          c = Add(a, one)
          d = Add(b, eins)
          e = Mul(c, d)
        }
        ""","""
        graph net(x: float32[2]) -> (e, again=a) {
          a = Relu(x)
          one = const float32[1] [1.0]
          c = Add(a, one)
          e = Mul(c, c)
        }
        """,
    )


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Relu(x)", "Neg(x)"),
        ("Add(x, z)", "Add(z, x)"),
        ("LeakyRelu(x) {alpha=0.1}", "LeakyRelu(x) {alpha=0.2}"),
        ("LeakyRelu(x) {alpha=0.0}", "LeakyRelu(x) {alpha=-0.0}"),
        ("RandomNormalLike(x)", "RandomNormalLike(x)"),
        ("Bernoulli(x) {seed=1.0}", "Bernoulli(x) {seed=1.0}"),
        ("my::State(x)", "my::State(x)"),
        ("Relu(x) @cpu", "Relu(x) @cuda"),
        ("const float32[1] [0.0]", "const float32[1] [-0.0]"),
        ("const float32[1] [0.0]", "const int32[1] [0]"),
        ("const float32[1] [0.0]", "const float32[] 0.0"),
    ],
)
def test_what_differs_stays_apart(one: str, two: str) -> None:
    unchanged(
        "MergeCommon", f"graph net(x: float32[2], z: float32[2]) -> (a, b) {{ a = {one}\n b = {two} }}", opset="21, my 1"
    )


def test_what_others_wait_for_stays() -> None:
    unchanged("MergeCommon", "graph net(x: float32[2]) -> (c) { a = Relu(x)\n b = Relu(x)\n c = Add(a, b) after(b) }")


def test_nan_is_equal_to_itself_bit_for_bit() -> None:
    x = variable("x", "float32", (2,))
    arrays = [np.array([np.nan, 1], np.float32), np.array([np.nan, 1], np.float32)]
    g = Graph([op("Add", op("Add", x, constant(arrays[0], "a")), constant(arrays[1], "b"))])
    assert len(apply_pass(g, "MergeCommon")) == len(g) - 1


def test_large_constants_are_compared_in_full() -> None:
    x = variable("x", "float32", (1000,))
    arrays = [np.zeros(1000, np.float32) for _ in range(3)]
    arrays[1][501] = 1
    y = x
    for i, array in enumerate(arrays):
        y = op("Add", y, constant(array, f"c{i}"), name=f"y{i}")
    result = apply_pass(Graph([y]), "MergeCommon")
    assert [node.name for node in result.nodes if node.is_constant] == ["c0", "c1"]


def test_calls_of_one_body_merge() -> None:
    body = Graph([op("Relu", variable("z"), name="r")], name="body")
    other = Graph([op("Relu", variable("z"), name="r2")], name="other")
    x = variable("x")
    calls = [call(body, x, name="a"), call(body, x, name="b"), call(other, x, name="c")]
    result = apply_pass(Graph(calls, output_names=["p", "q", "r"]), "MergeCommon")
    assert [node.name for node in result.nodes] == ["x", "a", "c"]
    assert result.output_names == ("p", "q", "r") and result.outputs[0] == result.outputs[1]


def test_constants_of_text_are_merged_by_what_they_say() -> None:
    x = variable("x", "string", (2,))
    constants = [constant(np.array(words, object)) for words in (["a", "b"], ["a", "b"], ["a", "c"])]
    joined = [op("StringConcat", x, words) for words in constants]
    merged = apply_pass(Graph([*joined], [x]), "MergeCommon")
    assert [node.value.tolist() for node in merged.nodes if node.is_constant] == [["a", "b"], ["a", "c"]]
