"""Converts AttributeProtos to Python values, checked against the op's schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from partita.graph.errors import ReadError, did_you_mean
from partita.graph.ops.schemas import OpSpec
from partita.graph.readers.onnx.reading import Reading
from partita.graph.readers.onnx.source import utf8
from partita.graph.readers.onnx.tensors import read_dense, read_sparse, read_tensor, text

KINDS = {
    1: "FLOAT", 2: "INT", 3: "STRING", 4: "TENSOR", 5: "GRAPH", 6: "FLOATS", 7: "INTS", 8: "STRINGS", 9: "TENSORS",
    10: "GRAPHS", 11: "SPARSE_TENSOR", 12: "SPARSE_TENSORS", 13: "TYPE_PROTO", 14: "TYPE_PROTOS",
}
"""The name of each number of AttributeProto.AttributeType."""

_FIELDS = {
    "FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "FLOATS": "floats", "INTS": "ints",
    "STRINGS": "strings", "TENSORS": "tensors", "GRAPHS": "graphs", "SPARSE_TENSOR": "sparse_tensor",
    "SPARSE_TENSORS": "sparse_tensors", "TYPE_PROTO": "tp", "TYPE_PROTOS": "type_protos",
}
_VALUE_FIELDS = frozenset(_FIELDS.values())
_BY_FIELD = {field: kind for kind, field in _FIELDS.items()}


def read_attributes(
    reading: Reading,
    node: Any,
    spec: OpSpec | None,
    params: Mapping[str, Any] | None,
    read_body: Callable[[Any, str], Any],
) -> dict[str, Any]:
    """The node's attributes by name. `params` are the attributes of the enclosing function, if any."""
    attributes: dict[str, Any] = {}
    for given in node.attribute:
        name = utf8(given.name, reading.title)
        proto = _resolved(reading, node, given, params)
        if proto is None:
            continue
        kind = kind_of(reading, node, name, proto)
        if not name or name in attributes:
            cause = f"the attribute {name!r} is given twice" if name else "an attribute has no name"
            raise ReadError(cause, where=reading.where(node))
        if spec is not None:
            _check(reading, node, spec, name, kind)
        attributes[name] = _value(reading, node, name, kind, proto, read_body)
    if spec is not None:
        for wanted in spec.attributes.values():
            if wanted.required and wanted.name not in attributes:
                raise ReadError(f"{spec.title} needs the attribute {wanted.name!r}", where=reading.where(node))
    return attributes


def _resolved(reading: Reading, node: Any, proto: Any, params: Mapping[str, Any] | None) -> Any:
    """The value of the function's attribute that this attribute refers to; None if the call does not pass it."""
    reference = proto.ref_attr_name
    if not reference:
        return proto
    if params is None:
        raise ReadError(
            f"the attribute {proto.name!r} refers to {reference!r} of a function, but the node is in none",
            where=reading.where(node),
        )
    return params.get(reference)


def plain_attributes(reading: Reading, node: Any, kinds: Mapping[str, str]) -> dict[str, Any]:
    """The numeric attributes with these kinds of an op without a schema; others are skipped."""
    attributes = {}
    for proto in node.attribute:
        if proto.name in kinds:
            kind = kind_of(reading, node, proto.name, proto)
            if kind != kinds[proto.name]:
                cause = f"the attribute {proto.name!r} must be {kinds[proto.name]}, not {kind}"
                raise ReadError(cause, where=reading.where(node))
            attributes[proto.name] = getattr(proto, _FIELDS[kind])
    return attributes


def kind_of(reading: Reading, node: Any, name: str, proto: Any) -> str:
    """The attribute's declared kind, checked against its value."""
    kind = KINDS.get(proto.type)
    used = [field.name for field, _ in proto.ListFields() if field.name in _VALUE_FIELDS]
    if kind is None and not proto.type and len(used) == 1:
        return _BY_FIELD[used[0]]  # files of the first IR version lack the type
    if kind is None or (used and used != [_FIELDS[kind]]):
        raise ReadError(
            f"the attribute {name!r} must be {kind or f'of type {proto.type}'} and holds {' and '.join(used) or 'nothing'}",
            where=reading.where(node),
        )
    return kind


def _check(reading: Reading, node: Any, spec: OpSpec, name: str, kind: str) -> None:
    wanted = spec.attributes.get(name)
    if wanted is None:
        hint = did_you_mean(name, spec.attributes) or f"It has {', '.join(sorted(spec.attributes)) or 'none'}"
        raise ReadError(f"{spec.title} has no attribute {name!r}", where=reading.where(node), remedy=hint)
    if wanted.kind != kind:
        raise ReadError(f"the attribute {name!r} must be {wanted.kind}, not {kind}", where=reading.where(node))


def _value(reading: Reading, node: Any, name: str, kind: str, proto: Any, read_body: Callable[[Any, str], Any]) -> Any:
    if kind == "INT":
        return proto.i
    if kind == "INTS":
        return list(proto.ints)
    if kind == "FLOAT":
        return proto.f
    if kind == "FLOATS":
        return list(proto.floats)
    if kind == "STRING":
        return text(proto.s)
    if kind == "STRINGS":
        return [text(item) for item in proto.strings]
    if kind == "GRAPH":
        return read_body(proto.g, name)
    where = f"{reading.where(node)}, attribute {name!r}"
    if kind.startswith("TENSOR"):
        return _one_or_more(kind, proto.t, proto.tensors, lambda item: read_tensor(item, reading.folder, where))
    if kind.startswith("SPARSE"):
        return _one_or_more(
            kind, proto.sparse_tensor, proto.sparse_tensors, lambda item: read_sparse(item, reading.folder, where)
        )
    if kind.startswith("TYPE"):
        return _one_or_more(kind, proto.tp, proto.type_protos, lambda item: reading.types.read(item, where))
    raise ReadError("an attribute that is a list of graphs is not supported", where=where)


def _one_or_more(kind: str, one: Any, more: Any, read: Callable[[Any], Any]) -> Any:
    return [read(item) for item in more] if kind.endswith("S") else read(one)


_NUMBERS = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
_STRINGS = "value_string", "value_strings"
_SPARSE_TENSOR = 11


def constant_value(
    reading: Reading, node: Any, spec: OpSpec | None, params: Mapping[str, Any] | None, no_body: Callable[[Any, str], Any]
) -> np.ndarray[Any, Any]:
    """The array of a Constant node, which may be in one of several attributes; a sparse one becomes dense."""
    where = reading.where(node)
    for attribute in node.attribute:
        if attribute.name in ("sparse_value", "value") and attribute.type == _SPARSE_TENSOR:
            return read_dense(attribute.sparse_tensor, reading.folder, where)
    attributes = read_attributes(reading, node, spec, params, no_body)
    if len(attributes) != 1:
        raise ReadError(f"a Constant has one value, not {len(attributes)}", where=where)
    (key, value), = attributes.items()
    if key in _NUMBERS:
        return np.asarray(value, _NUMBERS[key])
    if key in _STRINGS:
        array = np.empty((len(value),) if isinstance(value, list) else (), object)
        array[...] = value
        return array
    return value  # type: ignore[no-any-return]
