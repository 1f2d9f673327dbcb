"""Types of one node's outputs by ONNX's own rules, inferred when the node is made."""

from __future__ import annotations

from typing import Any

from partita.graph.errors import ReadError
from partita.graph.graph import DEFAULT_OPSET
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.onnx_crashes import unsound
from partita.graph.ops.schemas import ONNX_DOMAINS, custom_op
from partita.graph.protos import TypeReader, write_type
from partita.graph.types import TensorType, Type

__all__ = ["output_types"]

SMALL = 1024
"""Maximum elements of constants that are passed to the rules, which read shapes and axes from them."""


def output_types(node: Node, where: str) -> tuple[Type | None, ...]:
    """The types that ONNX infers; None if an input's type is unknown.

    Attributes that ONNX does not validate are checked first."""
    import onnx
    import onnx.shape_inference

    unknown: tuple[Type | None, ...] = (None,) * len(node.output_names)
    if any(entry is not None and not isinstance(entry.type, TensorType) for entry in node.inputs):
        return unknown
    custom = custom_op(node.op, node.domain)
    if custom is not None:
        return custom.infer([None if e is None else e.type for e in node.inputs], node.attrs, len(unknown))
    if node.domain not in ONNX_DOMAINS:
        return unknown
    reason = unsound(node)
    if reason is not None:
        raise ReadError(f"{node.op} cannot be: {reason}", where=where, remedy="Check the parameters of the node")
    schema = onnx.defs.get_schema(node.op or "", DEFAULT_OPSET, node.domain)
    names = ["" if entry is None else f"i{i}" for i, entry in enumerate(node.inputs)]
    outputs = [f"o{i}" for i in range(len(node.output_names))]
    given = [(name, entry) for name, entry in zip(names, node.inputs, strict=True) if entry is not None]
    try:
        proto = onnx.helper.make_node(node.op or "", names, outputs, **dict(_attributes(node)))
        inferred = onnx.shape_inference.infer_node_outputs(
            schema,
            proto,
            {name: _to_proto(entry) for name, entry in given},
            {name: _tensor(entry) for name, entry in given if _is_small(entry)},
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, OverflowError) as error:
        raise ReadError(
            f"{node.op} does not take these inputs: {_first_line(error)}",
            where=where,
            remedy="Check the shapes of the inputs and of the parameters",
        ) from error
    read = TypeReader().read
    return tuple(read(inferred[name], where) if name in inferred else None for name in outputs)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _attributes(node: Node) -> Any:
    import onnx.numpy_helper

    for key, value in node.attrs.items():
        yield key, onnx.numpy_helper.from_array(value) if hasattr(value, "dtype") else value


def _is_small(entry: NodeEntry) -> bool:
    value = entry.node.value
    return value is not None and value.size <= SMALL


def _tensor(entry: NodeEntry) -> Any:
    import onnx.numpy_helper

    assert entry.node.value is not None
    return onnx.numpy_helper.from_array(entry.node.value)


def _to_proto(entry: NodeEntry) -> Any:
    import onnx

    proto = onnx.TypeProto()
    write_type(proto, entry.type)
    return proto
