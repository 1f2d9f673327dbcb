"""A model with ops that no device runs can be looked at: they have no device, and the rest is placed."""

from __future__ import annotations

import json

import pytest

import partita as pt
from partita.cli.main import main
from partita.graph.readers.text import parse

NET = parse("opset 21, my.ops 1\ngraph net(x: float32[2, 3]) -> (y) { a = Relu(x)\n b = my.ops::Odd(a)\n y = Exp(b) }")


@pytest.fixture
def placement(alpha, beta) -> pt.Placement:
    type(beta).ops = frozenset({"Relu", "Exp"})
    return pt.query(NET, "HETERO:alpha,beta", partial=True)


def test_the_rest_is_placed(placement) -> None:
    assert dict(placement) == {"a": "alpha", "y": "alpha"}
    assert placement.unsupported == {"b": {"alpha": "alpha has no Odd", "beta": "beta has no Odd"}}
    assert placement.why("b") == "b (Odd) is on no device\n  not on alpha: alpha has no Odd\n  not on beta: beta has no Odd"
    assert "no device: 1 op" in str(placement)
    assert placement.to_dict()["unsupported"] == placement.unsupported


def test_otherwise_it_is_an_error(alpha, beta) -> None:
    type(beta).ops = frozenset({"Relu", "Exp"})
    for ask in (pt.query, pt.compile):
        with pytest.raises(pt.NotSupported, match=r"(?s)can run:.*Odd \(b\).*alpha has no Odd.*beta has no Odd"):
            ask(NET, "HETERO:alpha,beta")


def test_it_stays_outside_the_subgraphs(placement) -> None:
    partitioned = pt.apply_pass(placement.apply(NET), "PartitionGraph")
    ops = [(node.name, node.op) for node in partitioned.nodes if node.is_op]
    assert ops == [("alpha_0", "Call"), ("b", "Odd"), ("alpha_1", "Call")]


def test_a_device_may_be_given_to_it_by_hand(placement) -> None:
    placement["b"] = "beta"
    assert placement.unsupported == {} and placement["b"] == "beta"


def test_a_call_that_holds_such_an_op_is_inlined(alpha, beta) -> None:
    type(beta).ops = frozenset({"Relu", "Exp"})
    graph = parse(
        "opset 21, my.ops 1\nfunc f(p: float32[2]) -> (r) { q = Relu(p)\n r = my.ops::Odd(q) }\n"
        "graph net(x: float32[2]) -> (y) { y = call f(x) name=c }"
    )
    placement = pt.query(graph, "HETERO:alpha,beta", partial=True)
    assert list(placement.unsupported.values()) == [{"alpha": "alpha has no Odd", "beta": "beta has no Odd"}]
    assert list(placement.values()) == ["alpha"]


@pytest.fixture
def model(tmp_path) -> str:
    pt.save(NET, tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_the_command_line_shows_it(model, alpha, beta, capsys, tmp_path) -> None:
    type(beta).ops = frozenset({"Relu", "Exp"})
    page = tmp_path / "page.html"
    assert main(["partition", model, "--devices", "HETERO:alpha,beta", "--report", str(page)]) == 3
    printed = capsys.readouterr()
    assert "no device" in printed.out and "alpha has no Odd" in printed.out
    assert "no device runs 1 op, outside all subgraphs: b" in printed.err
    assert "alpha has no Odd" in page.read_text()
    assert main(["partition", model, "--devices", "HETERO:alpha,beta", "--json"]) == 3
    assert list(json.loads(capsys.readouterr().out)["placement"]["unsupported"]) == ["b"]


@pytest.mark.parametrize(("node", "status"), [("b", 3), ("a", 0)])
def test_the_command_line_explains_it(model, alpha, beta, capsys, node, status) -> None:
    type(beta).ops = frozenset({"Relu", "Exp"})
    assert main(["explain", model, node, "--devices", "HETERO:alpha,beta"]) == status
    assert ("is on no device" in capsys.readouterr().out) == bool(status)


def test_what_is_to_run_has_to_be_whole(model, alpha, beta, capsys) -> None:
    type(beta).ops = frozenset({"Relu", "Exp"})
    assert main(["run", model, "--devices", "HETERO:alpha,beta"]) == 1
    assert "can run" in capsys.readouterr().err
