"""Ops that read constants alone are computed while compiling, and become no calls of their own."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators.placement import placing
from partita.graph.readers.text import parse

SCALED = """opset 21
graph net(x: float32[2, 3]) -> (y) {
  w = const float32[3] [1, 2, 3]
  axes = const int64[1] [0]
  u = Unsqueeze(w, axes)
  a = Add(x, u)
  v = Neg(u)
  y = Add(a, v)
}"""


def subgraphs(model: pt.CompiledModel) -> list[str]:
    return [row.device for row in model.report.subgraphs]


def test_an_op_that_its_readers_device_lacks_is_no_call(alpha, beta) -> None:
    model = pt.compile(parse(SCALED), "HETERO:alpha,beta")
    assert subgraphs(model) == ["alpha"]
    np.testing.assert_array_equal(model(np.ones((2, 3), np.float32))[0], np.ones((2, 3)))


def test_what_no_device_runs_is_computed(alpha) -> None:
    placement = pt.query(parse(SCALED), "alpha")
    assert placement.why("u") == "u (Unsqueeze) is computed while compiling, for it reads constants alone"
    assert placement.unsupported == {} and placement.to_dict()["computed"] == ["u", "v"]
    assert "computed while compiling: 2 ops" in str(placement) and placement.ops == 2
    model = pt.compile(parse(SCALED), "alpha")
    np.testing.assert_array_equal(model(np.ones((2, 3), np.float32))[0], np.ones((2, 3)))


def test_what_its_device_runs_with_others_stays_with_them(alpha, beta) -> None:
    graph = parse("opset 21\ngraph net(x: float32[2]) -> (y) { w = const float32[2] [1, 2]\n e = Exp(w)\n y = Add(x, e) }")
    model = pt.compile(graph, "HETERO:alpha,beta")
    assert {node.op for node in model.graph.nodes[-1].subgraph.nodes if node.is_op} == {"Exp", "Add"}


def test_an_output_is_made_by_its_device(alpha, beta) -> None:
    """It may have to lie in the device's memory."""
    graph = parse("opset 21\ngraph net(x: float32[2]) -> (y, z) { w = const float32[2] [1, 4]\n y = Sqrt(w)\n z = Relu(x) }")
    model = pt.compile(graph, "HETERO:alpha,beta")
    assert subgraphs(model) == ["beta", "alpha"]
    y, z = model(np.array([-1, 1], np.float32))
    assert (y.tolist(), z.tolist()) == ([1, 2], [0, 1])
    y[0] = 9
    assert model(np.zeros(2, np.float32))[0].tolist() == [1, 2], "a caller owns what is returned"


def test_random_ops_and_large_results_stay_ops(alpha, beta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "LIMIT", 1 << 10)
    graph = parse("""opset 21
graph net(x: float32[1000]) -> (y, z, r) {
  one = const float32[1] [1]
  n = const int64[1] [1000]
  large = Expand(one, n)
  y = Add(x, large)
  r = RandomNormalLike(one)
  z = Add(x, r)
}""")
    model = pt.compile(graph, "HETERO:alpha,beta")
    ops = {node.op for call in model.graph.nodes if call.subgraph for node in call.subgraph.nodes if node.is_op}
    assert {"Expand", "RandomNormalLike"} <= ops
    assert pt.query(graph, "HETERO:alpha,beta").computed == frozenset()


def test_the_reference_computes_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pt.compile(parse(SCALED), "reference")
    import partita.accelerators.engines.reference as reference

    ran = []
    evaluate = reference.evaluate_node
    monkeypatch.setattr(reference, "evaluate_node", lambda node, *rest: [ran.append(node.op), evaluate(node, *rest)][1])
    model(np.ones((2, 3), np.float32))
    assert ran == ["Add", "Add"]
