"""The names inside a FunctionProto: lists and replaces them, so that equal bodies share one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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

    None if the number of names does not match.
    """
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
