"""The opset of a body of onnxruntime's ops is the lowest, from 13 on, that has the ops in the form that the body uses."""

from __future__ import annotations

from collections import defaultdict

import onnx.defs

import partita as pt
from partita.graph.microsoft.table import MEANINGS, body_of
from tests.microsoft.nodes import ALL

LEAST = 13
"""The first opset whose Squeeze, Unsqueeze, Split and ReduceSum take their axes as inputs."""

LATER = {"Attention", "DecoderMaskedMultiHeadAttention", "MultiHeadAttention", "QAttention"}
"""Ops of which other forms than the cases need more."""

ONNX_NAMES = {"float32": "float", "float64": "double"}

SCHEMAS: dict[str, list[onnx.defs.OpSchema]] = defaultdict(list)
for known in onnx.defs.get_all_schemas_with_history():
    if not known.domain and not known.deprecated:
        SCHEMAS[known.name].append(known)


def has_form(schema: onnx.defs.OpSchema, node: pt.Node) -> bool:
    """True if the op of that version takes the node's inputs and attributes."""
    if not schema.min_input <= len(node.inputs) <= schema.max_input or not set(node.attrs) <= set(schema.attributes):
        return False
    allowed = {row.type_param_str: set(row.allowed_type_strs) for row in schema.type_constraints}
    for i, entry in enumerate(node.inputs):
        symbol = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
        if entry is not None and isinstance(entry.type, pt.TensorType):
            dtype = ONNX_NAMES.get(entry.type.dtype, entry.type.dtype)
            if f"tensor({dtype})" not in allowed.get(symbol, {symbol}):
                return False
    return True


def test_bodies_are_written_in_the_lowest_opset_that_has_their_ops() -> None:
    needed: dict[str, int] = {}
    for case in ALL:
        graph = pt.apply_pass(pt.load(case.model()), "InferShape")
        node = next(node for node in graph.nodes if node.op == case.op)
        types = [None if entry is None else entry.type for entry in node.inputs]
        body = body_of(node, types, [None if entry is None else entry.node.value for entry in node.inputs])
        assert body.opsets[""] == MEANINGS[case.op].since
        for inner in pt.apply_pass(body, "InferShape").nodes:
            if inner.is_op:
                first = min(schema.since_version for schema in SCHEMAS[str(inner.op)] if has_form(schema, inner))
                needed[case.op] = max(needed.get(case.op, LEAST), first)
    told = {op: MEANINGS[op].since for op in needed}
    assert {op: since for op, since in told.items() if op not in LATER} == {op: needed[op] for op in needed if op not in LATER}
    assert all(needed[op] <= told[op] == 14 for op in LATER)
