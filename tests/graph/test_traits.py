"""The table of op traits agrees with ONNX's schemas; users' ops have traits of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx.defs
import onnx.helper
import pytest

import partita as pt
from partita.graph import register_op, unregister_op
from partita.graph.flops import count_flops
from partita.graph.microsoft import table
from partita.graph.ops import is_random
from partita.graph.ops.schemas import custom_op, spec_of
from partita.graph.ops.traits import ROWS, TRAITS, _table, ops, traits
from partita.graph.readers.onnx import older_ops


def schemas(name: str) -> list[onnx.defs.OpSchema]:
    return [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.name == name and not schema.domain]


def op_names() -> set[str]:
    """The ops of ONNX, those that older versions of it had, and those of onnxruntime."""
    return {schema.name for schema in onnx.defs.get_all_schemas_with_history()} | older_ops._LAST.keys() | table.MEANINGS.keys()


def test_each_op_has_one_row_of_known_traits() -> None:
    names = [line.split()[0] for line in ROWS.strip().splitlines()]
    assert names == sorted(set(names))
    for name, has in _table().items():
        assert has and has <= TRAITS.keys(), name
        assert name in op_names(), f"{name} is not an op of ONNX or onnxruntime"
    assert set().union(*_table().values()) == TRAITS.keys()


@pytest.mark.parametrize("name", sorted(ops("unary")))
def test_a_unary_op_keeps_the_shape_of_its_operand(name: str) -> None:
    newest = max(schemas(name), key=lambda schema: schema.since_version)
    assert newest.min_input == 1 and len(newest.outputs) == 1


def test_the_reductions_are_those_of_onnx() -> None:
    named = {schema.name for schema in onnx.defs.get_all_schemas() if schema.name.startswith("Reduce") and not schema.domain}
    assert ops("reduction") == named


def test_schemas_name_types_as_numpy_and_this_project_do() -> None:
    numbers = {name.lower(): number for name, number in onnx.TensorProto.DataType.items() if number}
    names = {name: "string" if name == "string" else onnx.helper.tensor_dtype_to_np_dtype(n).name for name, n in numbers.items()}
    seen = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        spec = spec_of(schema.name, schema.domain, schema.since_version)
        assert spec is not None
        for theirs, ours in zip([*schema.inputs, *schema.outputs], [*spec.inputs, *spec.outputs], strict=True):
            spelled = {re.sub(r"tensor\((\w+)\)", lambda m: names[m[1]], text) for text in theirs.types}
            assert ours.types == {text.replace("seq(", "sequence(").replace(",", ", ") for text in spelled}, schema.name
            seen |= ours.types
    assert {"float6_e2m3fn", "optional(sequence(bool))", "map(string, int64)", "sequence(map(int64, float32))"} <= seen


def test_traits_are_asked_for_by_name() -> None:
    assert traits("Mish") == {"unary", "costly", "long"} and traits("NoSuchOp") == frozenset()
    assert ops("size", "quantizing") == {"Shape", "Size", "QuantizeLinear", "DequantizeLinear"}
    with pytest.raises(KeyError, match="unknown traits: nosuch"):
        ops("nosuch")


@pytest.fixture
def mine() -> Iterator[Callable[..., pt.Graph]]:
    """Declares the op my::Half with traits, and gives a graph of it behind a Relu."""

    def declare(*wanted: str, **words: Any) -> pt.Graph:
        register_op("Half", "my", shape=lambda types, attrs: types[0], numpy=lambda *x: x[0] / 2, traits=wanted, **words)
        x = pt.variable("x", "float32", (2, 3))
        return pt.Graph([pt.op("Half", pt.op("Relu", x, name="relu"), name="half", domain="my")])

    register_op("Half", "my")
    yield declare
    unregister_op("Half", "my")


def test_a_users_op_has_traits_in_its_own_domain(mine: Callable[..., pt.Graph]) -> None:
    mine("unary", "long")
    assert traits("Half", "my") == {"unary", "long"} and traits("Half") == traits("Half", "other") == frozenset()
    mine()
    assert traits("Half", "my") == frozenset()
    assert "Half" not in ops("unary")


@pytest.mark.parametrize("domain", ["ai.onnx.contrib", "ai.onnx.ml"])
def test_a_domain_named_like_onnxs_has_the_traits_that_are_declared(domain: str) -> None:
    """The extensions of onnxruntime are ops of ai.onnx.contrib."""
    register_op("Half", domain, traits="unary")
    try:
        assert traits("Half", domain) == {"unary"}
    finally:
        unregister_op("Half", domain)
    assert traits("Add", "ai.onnx.contrib") == frozenset() != traits("TreeEnsemble", "ai.onnx.ml")


def test_the_traits_of_a_users_op_are_forgotten_with_it() -> None:
    register_op("Half", "my", traits="unary")
    assert traits("Half", "my") == {"unary"}
    unregister_op("Half", "my")
    assert traits("Half", "my") == frozenset()


def test_an_unknown_trait_is_an_error_that_lists_the_known_ones(mine: Callable[..., pt.Graph]) -> None:
    mine("unary")
    with pytest.raises(pt.PartitaError, match="'unry' is not a trait of ops") as caught:
        mine("unry")
    assert "Did you mean 'unary'?" in str(caught.value) and all(name in str(caught.value) for name in TRAITS)
    with pytest.raises(pt.GraphError, match="3 are not attributes"):
        mine("long", attributes=3)
    assert traits("Half", "my") == {"unary"}


@pytest.mark.parametrize("wanted, flops", [("unary", 6), ("moving", 0), ("reduction", 6), ("matmul", None), ("long", None)])
def test_flops_of_a_users_op_follow_from_its_traits(mine: Callable[..., pt.Graph], wanted: str, flops: int | None) -> None:
    counted = count_flops(pt.apply_pass(mine(wanted), "InferShape"))
    assert counted.unknown == (("half",) if flops is None else ())
    assert counted.by_op.get("Half", 0) == (flops or 0)


def test_a_random_trait_is_as_the_keyword(mine: Callable[..., pt.Graph]) -> None:
    assert is_random(mine("random").outputs[0].node) and not is_random(mine("unary").outputs[0].node)


@pytest.mark.parametrize("wanted, is_folded", [("unary", True), ("endless", False)])
def test_an_endless_op_is_not_folded(mine: Callable[..., pt.Graph], wanted: str, is_folded: bool) -> None:
    mine(wanted)
    half = pt.op("Half", pt.constant(np.ones(2, np.float32)), name="half", domain="my")
    graph = pt.apply_pass(pt.Graph([pt.op("Relu", half)]), "FoldConstants")
    assert any(node.op == "Half" for node in graph.nodes) != is_folded


@pytest.mark.parametrize("wanted", ["commutative", "broadcast"])
def test_operands_of_a_commutative_op_match_in_any_order(mine: Callable[..., pt.Graph], wanted: str) -> None:
    mine(wanted, inputs=(1, 2))
    x = pt.variable("x", "float32", (2,))
    graph = pt.Graph([pt.op("Half", pt.op("Exp", x), pt.op("Relu", x), domain="my", name="half")])
    pattern = pt.PatternProperty(pt.Pattern(("my::Half", "Relu", "Exp")), "p")
    made = pt.apply_pass(graph, "PartitionGraph", subgraph_property=pattern)
    assert any(node.is_call for node in made.nodes) == (wanted == "commutative")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"op": 5}, "'my' and 5 do not name an op"),
        ({"domain": None}, "None and 'Odd' do not name an op"),
        ({"inputs": (3, 1)}, "(3, 1) is not a number\n  Write a number from 0 on, or two"),
        ({"inputs": "a"}, "op my.Odd, inputs: 'a' is not a number"),
        ({"inputs": True}, "True is not a number"),
        ({"outputs": 0}, "0 is not a number\n  Write a number from 1 on"),
        ({"attributes": [1]}, "[1] are not attributes"),
        ({"attributes": {"a": [b"x"]}}, "op my.Odd, attribute 'a': [b'x'] is not a value"),
        ({"shape": 5}, "5 is not a function"),
        ({"random": "yes"}, "'yes' is neither True nor False"),
        ({"traits": [3]}, "[3] are not traits"),
        ({"traits": 5}, "5 are not traits"),
        ({"traits": ["unray"]}, "'unray' is not a trait of ops\n  Did you mean 'unary'"),
    ],
)
def test_declarations_that_make_no_sense(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(pt.GraphError) as caught:
        pt.register_op(**{"op": "Odd", "domain": "my", **wrong})
    assert message in str(caught.value)
    assert custom_op("Odd", "my") is None
