"""The table of op traits agrees with ONNX's schemas."""

from __future__ import annotations

import onnx.defs
import pytest

from partita.graph.ops.traits import _ROWS, TRAITS, _table, ops, traits


def schemas(name: str) -> list[onnx.defs.OpSchema]:
    return [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.name == name and not schema.domain]


def test_each_op_has_one_row_of_known_traits() -> None:
    names = [line.split()[0] for line in _ROWS.strip().splitlines()]
    assert names == sorted(set(names))
    for name, has in _table().items():
        assert has and has <= TRAITS.keys(), name
        assert schemas(name), f"{name} is no op of ONNX"
    assert set().union(*_table().values()) == TRAITS.keys()


@pytest.mark.parametrize("name", sorted(ops("unary")))
def test_a_unary_op_keeps_the_shape_of_its_operand(name: str) -> None:
    newest = max(schemas(name), key=lambda schema: schema.since_version)
    assert newest.min_input == 1 and len(newest.outputs) == 1


def test_the_reductions_are_those_of_onnx() -> None:
    named = {schema.name for schema in onnx.defs.get_all_schemas() if schema.name.startswith("Reduce") and not schema.domain}
    assert ops("reduction") == named


def test_traits_are_asked_for_by_name() -> None:
    assert traits("Mish") == {"unary", "costly", "long"} and traits("NoSuchOp") == frozenset()
    assert ops("size", "quantizing") == {"Shape", "Size", "QuantizeLinear", "DequantizeLinear"}
    with pytest.raises(KeyError, match="unknown traits: nosuch"):
        ops("nosuch")
