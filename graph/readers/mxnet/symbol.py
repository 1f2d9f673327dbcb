"""MXNet's JSON form of a network, in the variants of all releases: parsed and checked, but not interpreted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from partita.graph.errors import ReadError
from partita.graph.readers.mxnet.attributes import Attributes

__all__ = ["Symbol", "SymbolNode", "parse_symbol"]

VARIABLE = "null"
"""The op of a variable."""

MAX_DEPTH = 16
"""Maximum nesting depth of subgraphs."""

_HIDDEN = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope")
"""Annotations that releases before 1.0 wrote without underscores around the name."""


@attrs.frozen(slots=True)
class SymbolNode:
    """One node of the file."""

    op: str
    """MXNet's op; "null" for a variable."""
    name: str
    """Its name, not necessarily unique."""
    inputs: tuple[tuple[int, int], ...]
    """Node and output index of each input."""
    params: Attributes
    """The op's parameters."""
    hidden: Attributes
    """Annotations, by name without underscores: shape, dtype, ctx_group and others."""
    after: tuple[int, ...]
    """Nodes that must run before this one."""
    subgraphs: tuple[Symbol, ...]
    """The bodies of control flow, and of calls."""

    @property
    def is_variable(self) -> bool:
        """True for an input or a parameter of the network."""
        return self.op == VARIABLE

    @property
    def where(self) -> str:
        """The node, for messages."""
        return self.params.where


@attrs.frozen(slots=True)
class Symbol:
    """A network: nodes in topological order."""

    nodes: tuple[SymbolNode, ...]
    """The nodes in the file's order."""
    heads: tuple[tuple[int, int], ...]
    """Node and output number of each output of the network."""
    version: str | None
    """The release of MXNet that wrote it, as a number such as 10901."""


def parse_symbol(source: str | bytes | Mapping[str, Any], where: str) -> Symbol:
    """The network in JSON text, or in the parsed dictionary."""
    if isinstance(source, Mapping):
        return _symbol(source, where)
    try:
        data = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise ReadError(
            f"this is not JSON: {error}", where=where, remedy="It must be a '-symbol.json' file that MXNet exported"
        ) from error
    return _symbol(data, where)


def _symbol(data: Any, where: str, depth: int = 0) -> Symbol:
    if depth > MAX_DEPTH:
        raise ReadError(f"subgraphs are nested more than {MAX_DEPTH} deep", where=where)
    if not isinstance(data, Mapping) or not isinstance(data.get("nodes"), list) or "heads" not in data:
        raise ReadError(
            "this JSON is not an MXNet symbol: it has no list of nodes, or no heads",
            where=where,
            remedy="It must be a '-symbol.json' file that MXNet exported",
        )
    nodes = tuple(_node(item, i, where, depth) for i, item in enumerate(data["nodes"]))
    heads = _entries(data["heads"], len(nodes), where, "heads")
    if not heads:
        raise ReadError("the symbol has no outputs", where=where)
    return Symbol(nodes, heads, _version(data.get("attrs")))


def _version(attributes: Any) -> str | None:
    version = attributes.get("mxnet_version") if isinstance(attributes, Mapping) else None
    return str(version[1]) if isinstance(version, list) and len(version) == 2 and isinstance(version[1], int) else None


def _node(item: Any, index: int, where: str, depth: int) -> SymbolNode:
    node_title = f"{where}, node {index}"
    if not isinstance(item, Mapping) or not all(isinstance(item.get(k), str) for k in ("op", "name")):
        raise ReadError("a node must have an op and a name", where=node_title)
    op, name = item["op"], item["name"]
    if not op or not name:
        raise ReadError("a node's op or name is empty", where=node_title)
    title = f"node {name!r} ({op})"
    params, hidden = _attributes(item, title)
    after = item.get("control_deps", [])
    if not isinstance(after, list) or not all(_is_index(i, index) for i in after):
        raise ReadError("control_deps must be a list of earlier nodes", where=title)
    subgraphs = item.get("subgraphs", [])
    if not isinstance(subgraphs, list):
        raise ReadError("subgraphs must be a list", where=title)
    return SymbolNode(
        op=op,
        name=name,
        inputs=_entries(item.get("inputs", []), index, title, "inputs"),
        params=Attributes(params, title),
        hidden=Attributes(hidden, title),
        after=tuple(after),
        subgraphs=tuple(_symbol(body, f"{title}, subgraph {i}", depth + 1) for i, body in enumerate(subgraphs)),
    )


def _is_index(value: Any, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _entries(listed: Any, count: int, where: str, what: str) -> tuple[tuple[int, int], ...]:
    """Checks entries [node, output] or [node, output, version], which refer to the first `count` nodes."""
    if not isinstance(listed, list):
        raise ReadError(f"{what} must be a list", where=where)
    entries = []
    for entry in listed:
        if not isinstance(entry, list) or len(entry) not in (2, 3) or not all(_is_index(i, 2**31) for i in entry):
            raise ReadError(f"{what} holds {entry!r:.60}, which must be [node, output, version]", where=where)
        if entry[0] >= count:
            raise ReadError(
                f"{what} refers to node {entry[0]}, and only the first {count} nodes can be meant",
                where=where,
                remedy="A node must come after all that it reads; cycles are not supported",
            )
        entries.append((entry[0], entry[1]))
    return tuple(entries)


def _attributes(item: Mapping[str, Any], where: str) -> tuple[dict[str, str], dict[str, str]]:
    """The op's parameters and the annotations.

    Since 1.0 releases write both under "attrs", before under "attr"; the first ones had parameters under "param" and
    annotations under "attr"."""
    params: dict[str, str] = {}
    hidden: dict[str, str] = {}
    for key in ("attrs", "attr", "param"):
        section = item.get(key) or {}
        if not isinstance(section, Mapping):
            raise ReadError(f"{key} must be a dictionary", where=where)
        for name, value in section.items():
            if not isinstance(value, str):
                raise ReadError(f"the parameter {name!r} must be text, but is {value!r:.60}", where=where)
            bare = name[2:-2] if name.startswith("__") and name.endswith("__") and len(name) > 4 else None
            if bare or name in _HIDDEN or (key == "attr" and "param" in item):
                hidden[bare or name] = value
            else:
                params[name] = value
    return params, hidden
