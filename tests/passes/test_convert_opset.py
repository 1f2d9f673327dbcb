"""ConvertOpset: the same graph in another version's ops, bodies and calls too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph import Graph, PassError, constant, op, variable
from partita.passes import apply_pass
from tests.graphs.older_resizes import resized

from .before_after import same_values, text


def test_bodies_of_calls_and_ifs_are_converted_by_themselves() -> None:
    g = text(
        """
        func body(z: float32[2, 3]) -> (r) {
          n = Neg(z)
          r = ReduceSum(n) {axes=[0]} name=sum
        }
        graph net(x: float32[2, 3], c: bool[]) -> (first=a, again=b, chosen=y, x=x, first2=a) {
          h = Relu(x) @cuda
          a = call body(h)
          b = call body(h)
          y = If(c) {
            then_branch=graph t(q: float32[2, 3]) -> (s) { s = ReduceSum(q) {axes=[1], keepdims=0} },
            else_branch=graph e(q: float32[2, 3]) -> (v) { u = Neg(q)
              v = ReduceMax(u) {axes=[1], keepdims=0} },
          } captures(h)
        }
        """,
        11,
    )
    result = apply_pass(g, "ConvertOpset", opset=18)
    assert result.opsets == {"": 18} and result["a"].subgraph.opsets == {"": 18}
    assert result["a"].subgraph is result["b"].subgraph
    assert {node.name for node in g.nodes if node.is_op} <= {node.name for node in result.nodes}
    assert len(result["a"].subgraph["sum"].inputs) == 2, "the axes are an input from opset 13 on"
    assert result["h"].affinity == "cuda"
    for condition in (True, False):
        same_values(g, result, [np.arange(6, dtype=np.float32).reshape(2, 3) - 2, np.array(condition)])


@pytest.mark.parametrize(
    ("old", "new", "statement"),
    [
        (9, 13, "y = Softmax(x) {axis=1}"),
        (11, 18, "y = Softmax(x) {axis=0}"),
        (13, 12, "y = Softmax(x) {axis=-1}"),
        (7, 21, "y = Dropout(x)"),
        (9, 18, "y = Upsample(x, scales) {mode=\"nearest\"}"),
        (9, 13, "y = Squeeze(u) {axes=[0]}"),
        (12, 13, "y, z = Split(x) {axis=0, split=[1, 1]} name=parts"),
        (8, 9, "y = Sum(x, x)"),
        (9, 18, "y = Pad(x) {pads=[0, 1, 0, 0, 0, 0], value=2.0}"),
        (6, 18, "y = Add(x, one) {broadcast=1}"),
        (10, 18, "y = Clip(x) {min=0.0, max=3.0}"),
        (18, 17, "y = ReduceMean(x, axes)"),
    ],
)
def test_values_stay(old: int, new: int, statement: str) -> None:
    scales = "scales = const float32[3] [1.0, 2.0, 2.0]"
    g = text(
        f"""
        graph net(x: float32[2, 3, 4], u: float32[1, 2]) -> (y) {{
          {scales}
          axes = const int64[1] [1]
          one = const float32[1] [1.0]
          {statement}
        }}
        """,
        old,
    )
    result = apply_pass(g, "ConvertOpset", opset=new)
    assert result.opsets == {"": new}
    same_values(g, result, [np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7 - 1, np.ones((1, 2), np.float32)], 1e-6)


def test_names_stay_and_constants_are_shared() -> None:
    big = np.arange(200_000, dtype=np.float32).reshape(2, 100_000)
    y = op("MatMul", variable("x", "float32", (3, 2)), constant(big, "w"), name="y", opset=9)
    g = Graph([y], opsets={"": 9}, output_names=["out"])
    result = apply_pass(g, "ConvertOpset", opset=21)
    assert result["w"].value is big and result.inputs == g.inputs and result.output_names == ("out",)
    assert [node.name for node in result.nodes] == [node.name for node in g.nodes]


def test_nothing_to_do() -> None:
    g = text("graph net(x: float32[2]) -> (y) { y = Relu(x) }")
    assert apply_pass(g, "ConvertOpset", opset=21) is g
    only_inputs = apply_pass(text("graph net(x: float32[2]) -> (y=x) { }"), "ConvertOpset", opset=18)
    assert only_inputs.opsets == {"": 18} and only_inputs.output_names == ("y",)


@pytest.mark.parametrize(
    ("net", "old", "new", "said"),
    [
        ("y = Relu(x)", 21, 99, "pass 'ConvertOpset': there is no opset 99\n  The onnx package here knows 1 to "),
        ("y = Relu(x)", 21, True, "there is no opset True"),
        ("y = Gelu(x)", 21, 18, "graph 'net': ONNX cannot convert it from opset 21 to 18: No Previous Version of Gelu exists\n"),
        ("y = Softmax(x) {axis=0}", 13, 12, "node 'y' (Softmax): Softmax over an axis that is not the last has no equal below"),
        ("a = Neg(x)\n y = Relu(x) after(a)", 21, 18, "the graph has control dependencies, which ONNX cannot express"),
    ],
)
def test_refusals(net: str, old: int, new: Any, said: str) -> None:
    g = text(f"graph net(x: float32[2, 3, 4]) -> (y) {{ {net} }}", old)
    with pytest.raises(PassError) as error:
        apply_pass(g, "ConvertOpset", opset=new)
    assert said in str(error.value)


@pytest.mark.parametrize(("old", "new", "dtype"), [(9, 13, "bool"), (10, 8, "float32"), (7, 9, "float32")])
def test_the_mask_of_a_dropout_has_the_type_of_the_version(old: int, new: int, dtype: str) -> None:
    dropped = op("Dropout", variable("x", "float32", (2,)), name="drop", output_names=["y", "mask"], opset=old, ratio=0.5)
    mask = apply_pass(Graph([op("Relu", dropped[0], name="relu")], opsets={"": old}), "ConvertOpset", opset=new)["drop"][1]
    assert str(mask.type) == f"{dtype}[2]"
    if (old < 10) != (new < 10):
        with pytest.raises(PassError, match="'drop' .Dropout.: the mask, an output of the graph, has another type in opset"):
            apply_pass(Graph([dropped[0], dropped[1]], opsets={"": old}), "ConvertOpset", opset=new)


def test_a_scan_does_not_cross_opset_9() -> None:
    body = Graph([variable("s"), variable("v")], name="body", opsets={"": 9})
    body = body.evolve(outputs=[op("Add", *body.inputs, name="sum", opset=9)[0]], output_names=["sum"], nodes=())
    state, rows = variable("s0", shape=(2,)), variable("xs", shape=(3, 2))
    g = Graph([op("Scan", state, rows, body=body, num_scan_inputs=1, name="scan", opset=9)], opsets={"": 9})
    assert apply_pass(g, "ConvertOpset", opset=16)["scan"].attrs["body"].opsets == {"": 16}
    with pytest.raises(PassError, match=r"node 'scan' \(Scan\): Scan has no conversion from opset 9 to 8"):
        apply_pass(g, "ConvertOpset", opset=8)


def test_a_large_constant_that_the_file_lists_among_its_inputs() -> None:
    big = constant(np.zeros((2, 100_000), np.float32), "w").evolve(metadata={"onnx.input": "1"})
    g = Graph([op("MatMul", variable("x", "float32", (3, 2)), big, name="y", opset=9)], opsets={"": 9})
    assert apply_pass(g, "ConvertOpset", opset=21)["w"].metadata == {"onnx.input": "1"}


def test_ops_at_which_onnx_would_crash() -> None:
    g = text('graph net(x: float32[2]) -> (y) { a = me::V(x)\n y = RegexFullMatch(a) {pattern="a"} }', "21, me 1")
    result = apply_pass(g, "ConvertOpset", opset=22)
    assert result.opsets[""] == 22 and result["y"].attrs == {"pattern": "a"}
    with pytest.raises(PassError, match="RegexFullMatch has no conversion from opset 21 to 13"):
        apply_pass(g, "ConvertOpset", opset=13)


def test_ops_of_domains_that_the_graph_does_not_mention() -> None:
    g = Graph([op("Relu", op("Mine", variable("x", "float32", (2,)), name="m", domain="me"), name="y")])
    assert apply_pass(apply_pass(g, "Default"), "ConvertOpset", opset=20)["m"].domain == "me"


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("factors", [(2.0, 3.0), (1.5, 2.5), (0.5, 0.7)])
@pytest.mark.parametrize("old", [7, 9, 10])
def test_resizes_find_the_positions_that_they_found(old: int, factors: tuple[float, float], mode: str) -> None:
    graph, image = resized(old, mode, factors), np.arange(60, dtype=np.float32).reshape(1, 2, 5, 6)
    converted = apply_pass(graph, "ConvertOpset", opset=13)
    assert [node.op for node in converted.nodes if node.is_op] == ["Resize"]
    (result,), (wanted,) = (pt.compile(one, "reference")(image) for one in (converted, graph))
    np.testing.assert_array_equal(result, wanted)


def test_a_resize_that_grows_and_shrinks_to_the_nearest_has_no_conversion() -> None:
    with pytest.raises(PassError, match="the nearest of two pixels depends on the factors"):
        apply_pass(resized(9, "nearest", (0.5, 2.0)), "ConvertOpset", opset=13)
