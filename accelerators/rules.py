"""What `pin` and `forbid` say, node by node."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from accelerators.device_list import Device, find_device
from accelerators.errors import AcceleratorError
from graph.errors import did_you_mean
from graph.graph import Graph

Pin = Mapping[str, str]
"""Regular expressions for whole node names, each with the device that runs them."""

Forbid = Mapping[str, "str | Sequence[str]"]
"""Ops ("Conv", "domain::Op") or regular expressions for whole node names, each with the devices that must not run them."""


@attrs.frozen(slots=True)
class Rules:
    """The user's word on single nodes."""

    pinned: Mapping[str, tuple[str, str]]
    """By node name, the device that must run it, and the rule that says so."""
    forbidden: Mapping[str, Mapping[str, str]]
    """By node name, the devices that must not run it, each with the rule that says so."""


def resolve_rules(
    graph: Graph, devices: Sequence[Device], pin: Pin | None, forbid: Forbid | None, inlined: Collection[str] = ()
) -> Rules:
    """The rules applied to the graph's ops. One that means no node, or two devices for one node, are errors; one that means a
    call which was `inlined` is none."""
    pinned: dict[str, tuple[str, str]] = {}
    for pattern, label in _rules(pin, "pin").items():
        where, rule = f"pin[{pattern!r}]", f"pin {pattern!r}"
        find_device(label, devices, where)
        for name in _matching(graph, pattern, where, inlined):
            before = pinned.setdefault(name, (label, rule))
            if before[0] != label:
                cause = f"node {name!r} is pinned to {before[0]!r} already, by {before[1]}"
                raise AcceleratorError(cause, where=where, remedy="Make one of them narrower")
    forbidden: dict[str, dict[str, str]] = {}
    for key, listed in _rules(forbid, "forbid").items():
        where = f"forbid[{key!r}]"
        labels = list(listed) if isinstance(listed, (list, tuple, set, frozenset)) else [listed]
        for label in labels:
            find_device(label, devices, where)
        for name in _of_op(graph, key) or _matching(graph, key, where, inlined, op_will_do=True):
            forbidden.setdefault(name, {}).update(dict.fromkeys(labels, f"forbid {key!r}"))
    for name, (label, rule) in pinned.items():
        if label in forbidden.get(name, {}):
            cause = f"{rule} puts it on {label!r}, where {forbidden[name][label]} will not have it"
            raise AcceleratorError(cause, where=f"node {name!r}", remedy="Make one of them narrower")
    return Rules(pinned, forbidden)


def _rules(rules: Mapping[str, Any] | None, where: str) -> Mapping[str, Any]:
    if rules is not None and not (isinstance(rules, Mapping) and all(isinstance(key, str) for key in rules)):
        raise AcceleratorError(f"it is a dictionary, not {rules!r}", where=where, remedy=f'Write {where}={{"conv.*": "device"}}')
    return rules or {}


def _of_op(graph: Graph, key: str) -> list[str]:
    return [n.name for n in graph.nodes if n.is_op and key == (f"{n.domain}::{n.op}" if n.domain else n.op)]


def _matching(
    graph: Graph, pattern: str, where: str, inlined: Collection[str] = (), op_will_do: bool = False
) -> list[str]:
    try:
        fits = re.compile(pattern).fullmatch
    except re.error as error:
        raise AcceleratorError(f"it is no regular expression: {error}", where=where) from error
    names = [node.name for node in graph.nodes if node.is_op]
    found = [name for name in names if fits(name)]
    if not found and not any(map(fits, inlined)) and not (op_will_do and _is_known_op(graph, pattern)):
        known = {*names, *(n.op or "" for n in graph.nodes if op_will_do)}
        remedy = did_you_mean(pattern, known) or "It has to match a node's whole name"
        raise AcceleratorError("no op node has such a name", where=where, remedy=remedy)
    return found


def _is_known_op(graph: Graph, key: str) -> bool:
    """An op that the graph happens not to hold may be forbidden all the same."""
    from graph.ops import spec_of

    domain, _, op = key.rpartition("::")
    return op.isidentifier() and spec_of(op, domain, graph.opsets.get(domain, 1)) is not None
