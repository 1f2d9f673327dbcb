"""Attributes at which ONNX's own code would end the process, at the ends of what is sound."""

from __future__ import annotations

from typing import Any

import pytest

from partita.graph import TypeMismatch, constant, op, variable
from partita.graph.node import Node
from partita.graph.ops.onnx_crashes import is_fragile, require_sound, unsound

FORM = "is not made of letters, commas, at most one '...' for each input, and an arrow"

CASES: list[tuple[str, dict[str, Any], int, str | None]] = [
    ("Softmax", {"axis": 32767}, 1, None),
    ("Softmax", {"axis": 32768}, 1, "axis is 32768"),
    ("Softmax", {"axis": -32768}, 1, None),
    ("Softmax", {"axis": -32769}, 1, "axis is -32769"),
    ("GatherND", {"batch_dims": 0}, 1, None),
    ("GatherND", {"batch_dims": 1}, 1, None),
    ("GatherND", {"batch_dims": -1}, 1, "batch_dims is -1, and cannot be negative"),
    ("GatherND", {"batch_dims": 32768}, 1, "batch_dims is 32768"),
    ("Einsum", {"equation": "i j -> j\ti"}, 1, None),
    ("Einsum", {"equation": "a...B->B..."}, 1, None),
    ("Einsum", {"equation": "ii"}, 1, None),
    ("Einsum", {"equation": ""}, 1, None),
    ("Einsum", {"equation": b"ij->ji"}, 1, None),
    ("Einsum", {"equation": "i1"}, 1, f"the equation 'i1' {FORM}"),
    ("Einsum", {"equation": "é"}, 1, f"the equation 'é' {FORM}"),
    ("Einsum", {"equation": "...A>z."}, 1, f"the equation '...A>z.' {FORM}"),
    ("Einsum", {"equation": "i.j->ij"}, 1, f"the equation 'i.j->ij' {FORM}"),
    ("Einsum", {"equation": "...i...->i"}, 1, f"the equation '...i...->i' {FORM}"),
    ("Einsum", {"equation": "ij->ji->i"}, 1, f"the equation 'ij->ji->i' {FORM}"),
    ("Einsum", {"equation": "ij,jk->ik"}, 1, "the equation 'ij,jk->ik' is of 2 inputs, and the op has 1"),
    ("Einsum", {"equation": "ii->ijk"}, 1, "the equation 'ii->ijk' has 'j' in its result, which no input has"),
    ("Einsum", {"equation": "ij->...ij"}, 1, "the equation 'ij->...ij' has '...' in its result, which no input has"),
    ("Einsum", {"equation": "ij->iji"}, 1, "the equation 'ij->iji' has 'i' in its result twice"),
    ("ScatterElements", {}, 1, None),
    ("ScatterElements", {"reduction": "mean"}, 1, "its reduction is 'mean': none, add, mul, max, min are known"),
    ("ScatterND", {"reduction": "none"}, 1, None),
    ("ScatterND", {"reduction": b"min"}, 1, None),
    ("ScatterND", {"reduction": b"Min"}, 1, "its reduction is 'Min': none, add, mul, max, min are known"),
    ("Split", {"axis": 0}, 2, None),
    ("Split", {"num_outputs": 2}, 1, None),
    ("Split", {"num_outputs": 2}, 2, None),
    ("Split", {"num_outputs": 2}, 3, "num_outputs is 2, and it has 3 outputs"),
    ("Split", {"num_outputs": 1}, 2, "num_outputs is 1, and it has 2 outputs"),
    ("Split", {"num_outputs": 0}, 1, "num_outputs is 0, and it has 1 output"),
    ("Split", {"num_outputs": 32767}, 1, None),
    ("Split", {"num_outputs": 32768}, 1, "num_outputs is 32768, and no op has so many outputs"),
    ("Relu", {"num_outputs": 0, "equation": "1"}, 1, None),
]


def made(name: str, attributes: dict[str, Any], outputs: int, domain: str = "") -> Node:
    node = op("Relu", variable("x"), name="n")
    names = tuple([f"y{i}" for i in range(outputs)])
    return node.evolve(op=name, domain=domain, attrs=attributes, output_names=names, output_types=(None,) * outputs)


@pytest.mark.parametrize(("name", "attributes", "outputs", "reason"), CASES)
def test_what_is_wrong_with_an_attribute(name: str, attributes: dict[str, Any], outputs: int, reason: str | None) -> None:
    node = made(name, attributes, outputs)
    assert unsound(node) == reason
    assert unsound(made(name, attributes, outputs, "my")) is None
    if reason is None:
        require_sound(node)
        return
    with pytest.raises(TypeMismatch) as refused:
        require_sound(node)
    assert (refused.value.cause, refused.value.where) == (reason, f"node 'n' ({name})")


def test_ops_whose_inputs_need_types() -> None:
    listed = [("", "EyeLike"), ("", "RegexFullMatch"), ("", "Relu"), ("ai.onnx.ml", "TreeEnsemble"), ("my", "EyeLike")]
    assert [is_fragile(made(name, {}, 1, domain)) for domain, name in listed] == [True, True, False, True, False]
    assert not is_fragile(constant(0, "c"))
