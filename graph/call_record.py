"""The record of a call in an ONNX file: the properties of a Partita call that a model-local function does not express."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs


@attrs.frozen(slots=True)
class BodyRecord:
    """The body of a call."""

    name: str
    """The body's name."""
    inputs: int
    """Number of the function's inputs that are the body's; the rest are constants."""
    constants: tuple[tuple[str, str] | None, ...] = ()
    """Names of node and value of each of these constants; None for one that only a call inside the body uses."""
    outputs: tuple[tuple[str, str, int], ...] = ()
    """Per output of the body: its name, its kind ("output" of the function, "input" or "constant"), and its position."""
    names: tuple[str, ...] | None = None
    """The names inside the body, if its function was shared with a body that has other names."""
    metadata: tuple[tuple[str, str], ...] = ()
    """The body's metadata."""
    order: tuple[int, ...] | None = None
    """Positions of the inputs and these constants among the body's nodes, if they are not first."""


@attrs.frozen(slots=True)
class CallRecord:
    """The record of one call."""

    op: str
    """The node's op."""
    domain: str
    """The node's domain."""
    outputs: tuple[tuple[str, str], ...]
    """Per output of the call: its name, and its name in the file (empty if it has none there)."""
    body: BodyRecord
    """The body."""

    def to_json(self) -> str:
        """The record as JSON text."""
        return json.dumps(attrs.astuple(self), separators=(",", ":"))


def record_from_json(data: Any) -> CallRecord | None:
    """The record in parsed JSON; None if it is not one that our writer wrote."""
    try:
        op, domain, outputs, (name, inputs, constants, body_outputs, names, metadata, order) = data
        body = BodyRecord(
            _text(name),
            _count(inputs),
            tuple([None if item is None else (_text(item[0]), _text(item[1])) for item in constants]),
            tuple([(_text(own), _text(kind), _count(which)) for own, kind, which in body_outputs]),
            None if names is None else tuple(map(_text, names)),
            tuple([(_text(key), _text(value)) for key, value in metadata]),
            None if order is None else tuple(map(_count, order)),
        )
        record = CallRecord(_text(op), _text(domain), tuple([(_text(own), _text(file)) for own, file in outputs]), body)
    except (TypeError, ValueError, IndexError, KeyError):
        return None
    return record if len(record.outputs) == len(body.outputs) else None


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


Rename = Callable[[str], str]


def names_inside(proto: Any) -> tuple[list[str], list[str]]:
    """The value names in order of first use, and the name of each node in order."""
    values: dict[str, None] = {}
    nodes: list[str] = []

    def value(name: str) -> str:
        values.setdefault(name)
        return name

    def node(name: str) -> str:
        nodes.append(name)
        return name

    _walk(proto, value, node)
    return list(values), nodes


def with_names(proto: Any, names: Sequence[str]) -> Any | None:
    """A copy with these names: of the values, then of the nodes, in the order of `names_inside`.

    None if the number of names does not match."""
    values, nodes = names_inside(proto)
    if len(names) != len(values) + len(nodes):
        return None
    renamed = type(proto)()
    renamed.CopyFrom(proto)
    new_values = dict(zip(values, names, strict=False))
    new_nodes = iter(names[len(values) :])
    _walk(renamed, new_values.__getitem__, lambda _: next(new_nodes))
    return renamed


def canonical(proto: Any) -> bytes:
    """The function's contents without its name and with canonical names, equal for bodies that differ only in names."""
    values, nodes = names_inside(proto)
    renamed = with_names(proto, [f"v{i}" if name else "" for i, name in enumerate(values)] + [""] * len(nodes))
    assert renamed is not None
    renamed.name = ""
    return renamed.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def _walk(proto: Any, value: Rename, node: Rename) -> None:
    _each(proto.input, value)
    _nodes(proto.node, value, node)
    _each(proto.output, value)
    for item in proto.value_info:
        _set(item, value(item.name))


def _each(names: Any, value: Rename) -> None:
    for i, name in enumerate(names):
        new = value(name)
        if new != name:
            names[i] = new


def _nodes(protos: Any, value: Rename, node: Rename) -> None:
    for proto in protos:
        _set(proto, node(proto.name))
        _each(proto.input, value)
        for attribute in proto.attribute:
            if attribute.HasField("g"):
                _graph(attribute.g, value, node)
        _each(proto.output, value)


def _graph(graph: Any, value: Rename, node: Rename) -> None:
    for items in (graph.input, graph.initializer):
        for item in items:
            _set(item, value(item.name))
    _nodes(graph.node, value, node)
    for items in (graph.output, graph.value_info):
        for item in items:
            _set(item, value(item.name))


def _set(proto: Any, name: str) -> None:
    if proto.name != name:
        proto.name = name
