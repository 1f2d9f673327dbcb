"""Bool inputs of ops for which ONNX does not allow them: devices would add and multiply them, each in its own way."""

from __future__ import annotations

from functools import cache

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import TensorType


def takes_no_truth(node: Node, graph: Graph) -> str | None:
    """Why the op may not read its bool inputs; None if it may, or has none."""
    if node.domain:
        return None
    for slot, entry in enumerate(node.inputs):
        data_type = entry.type if entry is not None else None
        if isinstance(data_type, TensorType) and data_type.dtype == "bool":
            version = graph.opsets.get("", 1)
            allowed = _takes_truth(str(node.op), version)
            if allowed and not allowed[min(slot, len(allowed) - 1)]:
                return f"ONNX's {node.op} of opset {version} takes no bool, and input {slot} is {data_type}"
    return None


@cache
def _takes_truth(op: str, version: int) -> tuple[bool, ...]:
    """For each input, True if the op's definition allows bool; empty if there is no definition."""
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(op, version)
    except onnx.defs.SchemaError:
        return ()
    return tuple("tensor(bool)" in formal.types for formal in schema.inputs)
