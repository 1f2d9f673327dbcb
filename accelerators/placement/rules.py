"""Reads `pin` and `forbid` into rules for single nodes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.device_list import Device, find_device
from partita.graph.errors import did_you_mean
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.ops import spec_of

Pin = Mapping[str, str]
"""Regular expressions for whole node names, each with the device that runs them."""

Forbid = Mapping[str, "str | Sequence[str]"]
"""Ops ("Conv", "domain::Op") or regular expressions for whole node names, each with the devices that must not run them."""


@attrs.frozen(slots=True)
class Rules:
    """The user's rules for single nodes."""

    pinned: Mapping[str, tuple[str, str]]
    """For each node name, the device that must run the node, and the rule."""
    forbidden: Mapping[str, Mapping[str, str]]
    """For each node name, the devices that must not run the node, each with the rule."""
    inside: Mapping[str, Mapping[str, str]] = attrs.Factory(dict)
    """For each call name, the devices that must not run the call whole, each with the rule about an op inside."""

    def against(self, name: str, label: str) -> str | None:
        """The rule that forbids the device to run the node."""
        return self.forbidden.get(name, {}).get(label) or self.inside.get(name, {}).get(label)


def resolve_rules(
    graph: Graph,
    devices: Sequence[Device],
    pin: Pin | None,
    forbid: Forbid | None,
    inlined: Collection[str] = (),
    removed: Mapping[str, str] = MappingProxyType({}),
) -> Rules:
    """The rules for the graph's ops, and those inside its calls. A rule that matches no node, and two devices for one node,
    are errors; a rule that matches an `inlined` call is not. `removed` are nodes of the user's graph that this one lacks, each
    with the reason."""
    held = _held(graph) if pin or forbid else {}
    known = {*inlined, *(name for ops in held.values() for name, _ in ops)}
    inside: dict[str, dict[str, str]] = {}
    pinned: dict[str, tuple[str, str]] = {}
    for pattern, label in _rules(pin, "pin").items():
        where, rule = f"pin[{pattern!r}]", f"pin {pattern!r}"
        find_device(label, devices, where)
        for name in _matching(graph, pattern, where, known, removed):
            before = pinned.setdefault(name, (label, rule))
            if before[0] != label:
                cause = f"node {name!r} is pinned to {before[0]!r} already, by {before[1]}"
                raise AcceleratorError(cause, where=where, remedy="Make one of them narrower")
        elsewhere = [device.label for device in devices if device.label != label]
        for call, name in _within(held, pattern):
            inside.setdefault(call, {}).update(dict.fromkeys(elsewhere, f"{rule} inside, of {name!r}"))
    forbidden: dict[str, dict[str, str]] = {}
    for key, listed in _rules(forbid, "forbid").items():
        where = f"forbid[{key!r}]"
        labels = list(listed) if isinstance(listed, (list, tuple, set, frozenset)) else [listed]
        for label in labels:
            find_device(label, devices, where)
        for name in _of_op(graph, key) or _matching(graph, key, where, known, removed, op_will_do=True):
            forbidden.setdefault(name, {}).update(dict.fromkeys(labels, f"forbid {key!r}"))
        for call, name in _within(held, key):
            inside.setdefault(call, {}).update(dict.fromkeys(labels, f"forbid {key!r} inside, of {name!r}"))
    for name, (label, rule) in pinned.items():
        if label in forbidden.get(name, {}):
            cause = f"{rule} puts it on {label!r}, where {forbidden[name][label]} will not have it"
            raise AcceleratorError(cause, where=f"node {name!r}", remedy="Make one of them narrower")
    return Rules(pinned, forbidden, inside)


Held = dict[str, list[tuple[str, str]]]
"""For each call name, the name and the op type of each op inside."""


def _held(graph: Graph) -> Held:
    """The ops inside each call of the graph; those of shared bodies are listed once."""
    by_body: dict[int, list[tuple[str, str]]] = {}
    held: Held = {}
    for node in graph.nodes:
        if node.subgraph is not None:
            ops = by_body.get(id(node.subgraph))
            if ops is None:
                inner = (n for body in graphs_in(node.subgraph) for n in body.nodes if n.is_op)
                ops = by_body[id(node.subgraph)] = [(n.name, _title(n)) for n in inner]
            held[node.name] = ops
    return held


def _within(held: Held, key: str) -> Iterator[tuple[str, str]]:
    """The calls that contain an op that the rule matches, each with the first such op."""
    ops = {title for listed in held.values() for _, title in listed}
    fits = re.compile(key).fullmatch if key not in ops else None
    for call, listed in held.items():
        name = next((name for name, title in listed if (title == key if fits is None else fits(name))), None)
        if name is not None:
            yield call, name


def _title(node: Node) -> str:
    return f"{node.domain}::{node.op}" if node.domain else str(node.op)


def _rules(rules: Mapping[str, Any] | None, where: str) -> Mapping[str, Any]:
    if rules is not None and not (isinstance(rules, Mapping) and all(isinstance(key, str) for key in rules)):
        raise AcceleratorError(f"it is a dictionary, not {rules!r}", where=where, remedy=f'Write {where}={{"conv.*": "device"}}')
    return rules or {}


def _of_op(graph: Graph, key: str) -> list[str]:
    return [n.name for n in graph.nodes if n.is_op and key == _title(n)]


def _matching(
    graph: Graph, pattern: str, where: str, inlined: Collection[str], removed: Mapping[str, str], op_will_do: bool = False
) -> list[str]:
    try:
        fits = re.compile(pattern).fullmatch
    except re.error as error:
        raise AcceleratorError(f"it is not a regular expression: {error}", where=where) from error
    names = [node.name for node in graph.nodes if node.is_op]
    matching = [name for name in names if fits(name)]
    if not matching and not any(map(fits, inlined)) and not (op_will_do and _is_known_op(graph, pattern)):
        gone = next(filter(fits, removed), None)
        if gone is not None:
            raise AcceleratorError(f"node {gone!r} is gone: {removed[gone]}", where=where, remedy="Leave the rule out")
        known = {*names, *(n.op or "" for n in graph.nodes if op_will_do)}
        op = "an op, as Softmax, or " if op_will_do else ""
        remedy = did_you_mean(pattern, known) or f"It has to match {op}a node's whole name"
        raise AcceleratorError("no op node has such a name", where=where, remedy=remedy)
    return matching


def _is_known_op(graph: Graph, key: str) -> bool:
    """True for an op of ONNX: forbidding one that the graph does not contain is valid."""
    domain, _, op = key.rpartition("::")
    return op.isidentifier() and spec_of(op, domain, graph.opsets.get(domain, 1)) is not None
