"""The inputs of a decoder that a session fills: each by its type, its name, and the ops that read it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.decoder.input_roles import Roles, roles_of

IDS = ("ids", "int64", ("B", "S"))


def roles(*others: tuple[str, str, tuple[int | str, ...] | None], read_by: Any = None) -> Roles:
    """The roles in a decoder with one growing cache, of these inputs after its tokens."""
    past = pt.variable("past_keys", "float32", ("B", 2, "P", 4))
    nodes = [pt.variable(*one) for one in (IDS, *others)]
    outputs = [pt.op("Identity", past), *([] if read_by is None else read_by(nodes[-1]))]
    cache: Any = SimpleNamespace(past=past, axis=2, grows=True)
    return roles_of(pt.Graph(outputs, inputs=[*nodes, past], name="decoder"), [cache])


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "role"),
    [
        ("past_length", "int64", (), "past"),
        ("past_sequence_length", "int32", (1,), "past"),
        ("past_of_total", "int64", (), "past"),
        ("total_sequence_length", "int32", (), "total"),
        ("total", "int64", (1,), "total"),
        ("length", "int64", (), None),
        ("length", "int64", (1,), None),
        ("past_lengths", "int64", (2,), None),
        ("total_lengths", "int64", ("B",), None),
        ("total", "int64", (1, 1), None),
        ("past_scale", "float32", (), None),
        ("total", "bool", (), None),
        ("total", "int64", None, "total"),
        ("mask", "int64", ("B", "T"), "mask"),
        ("mask", "float32", ("B", "T"), "mask"),
        ("mask", "bool", ("B", "P"), None),
        ("encoder_mask", "int64", ("B", "T"), None),
        ("position_ids", "int64", ("B", "S"), "positions"),
        ("position_ids", "int32", ("S",), "positions"),
        ("position_ids", "float32", ("B", "S"), None),
        ("position_ids", "int64", ("B", "S", "S"), None),
        ("types", "int64", ("B", "S"), None),
    ],
)
def test_an_input_has_the_role_of_its_name_and_type(name: str, dtype: str, shape: Any, role: str | None) -> None:
    found = roles((name, dtype, shape))
    assert {node.name: one for node, one in found.filled.items()} == ({} if role is None else {name: role})
    assert [node.name for node in found.asked] == ["ids"] + [name] * (role is None)
    assert found.symbols == {"B": "batch", "P": "past", "S": "rows"}


def test_a_mask_as_long_as_another_inputs_states_is_for_an_encoder() -> None:
    found = roles(("mask", "int64", ("B", "T")), ("states", "float32", ("B", "T", 8)))
    assert not found.filled and [node.name for node in found.asked] == ["ids", "mask", "states"]


@pytest.mark.parametrize(
    ("readers", "role"), [(("Cast", "Cos"), "positions"), (("Cast", "Relu"), None), (("Neg", "Cos"), None)]
)
def test_positions_reach_angles_unless_they_are_the_tokens(readers: tuple[str, str], role: str | None) -> None:
    def read(node: pt.Node) -> list[pt.Node]:
        first = pt.op(readers[0], node, **({"to": 1} if readers[0] == "Cast" else {"name": "first"}))
        return [pt.op(readers[1], first if readers[0] == "Cast" else pt.op("Cast", first, to=1))]

    found = roles(("second", "int64", ("B", "S")), read_by=read)
    assert {node.name: one for node, one in found.filled.items()} == ({} if role is None else {"second": role})
    assert roles(read_by=read).filled == {}  # of this shape there is one input, the tokens


def test_a_position_that_a_cache_is_written_at_counts_earlier_tokens() -> None:
    def read(node: pt.Node) -> list[pt.Node]:
        cache, new = (pt.constant(np.zeros((1, 2, size, 4), np.float32)) for size in (8, 1))
        return [pt.op("TensorScatter", cache, new, node, axis=2, opset=24)]

    found = roles(("at", "int64", (1,)), read_by=read)
    assert {node.name: one for node, one in found.filled.items()} == {"at": "past"}
