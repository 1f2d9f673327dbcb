"""The rules of `pin` and `forbid` for single nodes, and for those inside of calls."""

from __future__ import annotations

from typing import Any

import pytest

import partita as pt
from partita.accelerators.interface.device_list import parse_devices
from partita.accelerators.placement.rules import Rules, resolve_rules


def called() -> pt.Graph:
    """A call `first` of Relu `r` and Exp `e`, a call `second` of the same body, and Relu `last` behind them."""
    x, inner = pt.variable("x", "float32", (4,)), pt.variable("i", "float32", (4,))
    body = pt.Graph([pt.op("Exp", pt.op("Relu", inner, name="r"), name="e")], name="body")
    calls = pt.call(body, pt.call(body, x, name="first"), name="second")
    return pt.Graph([pt.op("Relu", calls, name="last")], name="called")


def rules(graph: pt.Graph, pin: Any = None, forbid: Any = None, **options: Any) -> Rules:
    return resolve_rules(graph, parse_devices("HETERO:alpha,beta"), pin, forbid, **options)


def test_no_rules_forbid_nothing(alpha, beta):
    assert rules(called()) == Rules({}, {}, {})
    assert rules(called(), pin={}, forbid={}).against("first", "alpha") is None


def test_a_pinned_name_is_held_whole(alpha, beta):
    said = rules(called(), pin={"l..t": "beta"})
    assert dict(said.pinned) == {"last": ("beta", "pin 'l..t'")}
    assert not said.forbidden and not said.inside
    with pytest.raises(pt.PartitaError, match=r"pin\['las'\]: no op node has such a name"):
        rules(called(), pin={"las": "beta"})


def test_two_rules_for_one_device_agree(alpha, beta):
    said = rules(called(), pin={"last": "beta", "la.*": "beta"})
    assert dict(said.pinned) == {"last": ("beta", "pin 'last'")}, "the first rule is told"


def test_a_call_with_a_pinned_op_inside_may_not_run_elsewhere(alpha, beta):
    said = rules(called(), pin={"e": "alpha"}, inlined=["e"])
    assert not said.pinned
    assert {name: dict(by) for name, by in said.inside.items()} == {
        "first": {"beta": "pin 'e' inside, of 'e'"}, "second": {"beta": "pin 'e' inside, of 'e'"},
    }
    assert said.against("first", "beta") == "pin 'e' inside, of 'e'"
    assert said.against("first", "alpha") is said.against("last", "beta") is None


def test_an_op_or_a_name_inside_of_calls_is_forbidden(alpha, beta):
    by_op, by_name = rules(called(), forbid={"Exp": "beta"}), rules(called(), forbid={"r|e": ["alpha", "beta"]})
    assert not by_op.forbidden and not by_name.forbidden
    assert dict(by_op.inside["second"]) == {"beta": "forbid 'Exp' inside, of 'e'"}
    assert dict(by_name.inside["first"]) == dict.fromkeys(("alpha", "beta"), "forbid 'r|e' inside, of 'r'"), "the first is told"


def test_an_op_outside_and_inside_of_calls(alpha, beta):
    said = rules(called(), forbid={"Relu": {"alpha"}})
    assert {name: dict(by) for name, by in said.forbidden.items()} == {"last": {"alpha": "forbid 'Relu'"}}
    assert dict(said.inside["first"]) == {"alpha": "forbid 'Relu' inside, of 'r'"}
    assert said.against("last", "alpha") == "forbid 'Relu'"


def test_several_rules_about_one_node(alpha, beta):
    said = rules(called(), forbid={"Relu": "alpha", "last": "beta"})
    assert dict(said.forbidden["last"]) == {"alpha": "forbid 'Relu'", "beta": "forbid 'last'"}


def test_ops_of_other_domains_are_named_with_them(alpha, beta):
    x = pt.variable("x", "float32", (4,))
    graph = pt.Graph([pt.op("Relu", pt.op("Scaler", x, name="s", domain="ai.onnx.ml"), name="r")])
    assert dict(rules(graph, forbid={"ai.onnx.ml::Scaler": "alpha"}).forbidden["s"]) == {"alpha": "forbid 'ai.onnx.ml::Scaler'"}
    assert dict(rules(graph, forbid={"ai.onnx.ml::Normalizer": "alpha"}).forbidden) == {}, "an op that is known, but not there"
    for name in ("Scaler", "ai.onnx.ml::Scalar"):
        with pytest.raises(pt.PartitaError, match="no op node has such a name"):
            rules(graph, forbid={name: "alpha"})
    with pytest.raises(pt.PartitaError, match="no op node has such a name"):
        rules(graph, pin={"Gelu": "alpha"})


def test_a_pin_is_held_against_the_devices_that_are_forbidden(alpha, beta):
    said = rules(called(), pin={"last": "beta"}, forbid={"last": "alpha"})
    assert said.pinned["last"][0] == "beta"
    with pytest.raises(pt.PartitaError) as caught:
        rules(called(), pin={"last": "beta"}, forbid={"last": ["alpha", "beta"]})
    assert "node 'last': pin 'last' puts it on 'beta', where forbid 'last' will not have it" in str(caught.value)


def test_nodes_that_are_gone_or_inlined(alpha, beta):
    assert rules(called(), pin={"call": "beta"}, inlined=["call"]).pinned == {}
    with pytest.raises(pt.PartitaError, match="node 'was' is gone: it was folded"):
        rules(called(), pin={"w.*": "beta"}, removed={"other": "it was dead", "was": "it was folded"})


def test_names_that_are_meant_are_named_in_the_error(alpha, beta):
    with pytest.raises(pt.PartitaError, match="Did you mean 'second'"):
        rules(called(), pin={"secnd": "beta"})
    with pytest.raises(pt.PartitaError) as caught:
        rules(called(), pin={"Rellu": "beta"})
    assert "Did you mean" not in str(caught.value), "a pin names nodes, not ops"
