"""Finds a device for each node: by priority, after pinned, forbidden and manually placed nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from partita.accelerators.errors import AcceleratorError, NotSupported
from partita.accelerators.interface.device_list import Device, notes_on, parse_devices, present
from partita.accelerators.interface.inlining import inlined_with_owners, without_calls
from partita.accelerators.interface.settings import read_config
from partita.accelerators.placement.placement import Placement
from partita.accelerators.placement.rules import Forbid, Pin, Rules, resolve_rules
from partita.accelerators.placement.support_table import SupportTable, choose, unsupported
from partita.accelerators.process.exit_barrier import at_a_device
from partita.graph.build import is_made_call, may_inline
from partita.graph.errors import check_flag
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.readers.foreign import remedy_for
from partita.passes import apply_pass
from partita.passes.fold_constants import ops_of_constants
from partita.passes.infer import infer, with_missing_types
from partita.passes.views import TypeView


@at_a_device()
def query(
    graph: Graph,
    devices: str | Sequence[str] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    pin: Pin | None = None,
    forbid: Forbid | None = None,
    partial: bool = False,
) -> Placement:
    """The placement of each op by HETERO: on the first of the devices that runs it. Affinities of the graph are ignored.

    An op that no device runs is an error; with `partial` it has no device, and is in `placement.unsupported`, with the reasons.

    `config` is as for `compile`: devices answer for that configuration. `pin={"conv.*": device}` forces nodes whose whole name
    matches, `forbid={"Softmax": device}` excludes an op or such nodes."""
    asked = parse_devices(devices)
    settings = read_config(config, asked)
    asked = present(asked, settings.by_device, settings.hetero.strict)
    check_flag(partial, "option partial", AcceleratorError)
    live = live_part(_checked_types(checked_graph(graph, "query")))
    return place(live, asked, pin, forbid, by_device=settings.by_device, partial=partial, removed=dead_nodes(graph, live))


def place(
    graph: Graph,
    devices: Sequence[Device],
    pin: Pin | None = None,
    forbid: Forbid | None = None,
    fixed: Mapping[str, str] | None = None,
    by_device: Mapping[str, Mapping[str, Any]] | None = None,
    partial: bool = False,
    removed: Mapping[str, str] = MappingProxyType({}),
) -> Placement:
    """The placement of a typed graph; `fixed` has the devices of nodes that are placed already, `by_device` the configurations,
    `removed` the nodes of the user's graph that this one lacks, each with the reason.

    A call is placed whole on the first device, except the last resort, that takes all of its contents. One that none takes is
    inlined, unless it must stay in one piece, or the last resort is the only device."""
    fixed = fixed or {}
    calls = _Calls(devices, fixed)
    while True:
        rules = calls.extended(resolve_rules(graph, devices, pin, forbid, calls.names, removed))
        table = SupportTable(graph, devices, by_device)
        homeless = calls.homeless(graph, table, rules)
        if not homeless:
            break
        graph = calls.inlined(graph, homeless, rules)
    where, refused = {}, []
    for node in graph.nodes:
        if node.is_op:
            label = fixed.get(node.name) or choose(node.name, devices, table, rules)
            if label is None:
                refused.append(node)
            else:
                where[node.name] = label
    computed = computable(graph, {node.name for node in refused}) if refused else frozenset()
    if computed:  # they belong to no device in fact, and are gone before one compiles
        refused = [node for node in refused if node.name not in computed]
        where = {**where, **dict.fromkeys(computed, devices[0].label)}
        where = {node.name: where[node.name] for node in graph.nodes if node.name in where}
    if refused and not partial:
        raise unsupported(refused, devices, table, rules)
    by_hand = dict.fromkeys(fixed, "it had this affinity")
    by_hand.update((name, rule) for name, (_, rule) in rules.pinned.items())
    notes = [*notes_on(devices), *calls.notes, *calls.kept_whole(graph, where, table, rules)]
    placement = Placement(table, devices, rules, where, by_hand, calls.rounds, notes, [node.name for node in refused], computed)
    _check_forced(placement, table, rules, fixed)
    return placement


class _Calls:
    """Decides which calls of a graph stay whole and which are inlined."""

    def __init__(self, devices: Sequence[Device], fixed: Mapping[str, str]) -> None:
        self.devices = devices
        self.preferred = [device for device in devices if not device.accelerator.last_resort] or list(devices)
        """The devices that a call is placed on whole: all but the last resort, if there is another."""
        self.fixed = fixed
        self.rounds: list[list[str]] = []
        """The inlined calls, outer ones before those that came out of them."""
        self.names: set[str] = set()
        """The names of these nodes."""
        self.notes: list[str] = []
        """The reason for each of them."""
        self._forbidden: dict[str, dict[str, str]] = {}

    def extended(self, rules: Rules) -> Rules:
        """The rules, with those that forbid a call a device extended to the ops that came out of it."""
        forbidden = {name: dict(by_device) for name, by_device in rules.forbidden.items()}
        for name, by_device in self._forbidden.items():
            forbidden[name] = {**by_device, **forbidden.get(name, {})}
        return Rules(rules.pinned, forbidden, rules.inside)

    def homeless(self, graph: Graph, table: SupportTable, rules: Rules) -> list[str]:
        """The calls to be inlined: none of the preferred devices takes them whole."""
        return [
            node.name
            for node in graph.nodes
            if node.is_call
            and node.name not in self.fixed
            and may_inline(node)
            and choose(node.name, self.preferred, table, rules) is None
            and self._note(node.name, table, rules)
        ]

    def _note(self, name: str, table: SupportTable, rules: Rules) -> bool:
        reasons = _refusals(name, self.preferred, table, rules)
        self.notes.append(f"inlined: no device takes the call {name!r} whole: {reasons}")
        return True

    def inlined(self, graph: Graph, names: Sequence[str], rules: Rules) -> Graph:
        """The graph without these calls."""
        if any(name in rules.forbidden for name in names):
            _, owners = inlined_with_owners(graph, set(names), nested=False)
            self._forbidden.update(
                (name, dict(rules.forbidden[owner])) for name, owner in owners.items() if owner in rules.forbidden
            )
        self.rounds.append(list(names))
        self.names.update(names)
        return with_missing_types(without_calls(graph, [names]))

    def kept_whole(self, graph: Graph, where: Mapping[str, str], table: SupportTable, rules: Rules) -> list[str]:
        """A note on each call that would have been inlined, but must stay in one piece."""
        labels = {device.label for device in self.preferred}
        by_hand = any(node.name in self.fixed for node in graph.nodes if node.is_op and not is_made_call(node))
        notes = []
        for node in graph.nodes:
            if not node.is_call or node.name in rules.pinned:
                continue
            if node.name in self.fixed:
                if not by_hand:
                    notes.append(f"kept whole: the call {node.name!r} on {where[node.name]}, by its affinity")
            elif not may_inline(node) and node.name in where and where[node.name] not in labels:
                reasons = _refusals(node.name, self.preferred, table, rules)
                notes.append(f"kept whole: the call {node.name!r} on {where[node.name]}, because it has inline=False: {reasons}")
        return notes


def _refusals(name: str, devices: Sequence[Device], table: SupportTable, rules: Rules) -> str:
    """The reason of each device that refuses the node."""
    return "; ".join(
        f"{device.label}: {rules.against(name, device.label) or table.refusals(device.label)[name]}"
        for device in devices
    )


def _check_forced(placement: Placement, table: SupportTable, rules: Rules, fixed: Mapping[str, str]) -> None:
    """Checks that the nodes that the user forces onto a device run there."""
    for name in (*rules.pinned, *fixed):
        label = placement.get(name)
        reason = table.refusals(label).get(name) if label is not None else None
        if reason is not None:
            how = rules.pinned[name][1] if name in rules.pinned else "its affinity"
            raise NotSupported(
                f"{how} puts it on {label!r}, which does not run it: {reason}",
                where=f"node {name!r} ({placement.graph[name].op})",
                remedy="Choose another device, or let query place it",
            )


def checked_graph(graph: Graph, where: str) -> Graph:
    """The argument, if it is a graph; else an error."""
    if not isinstance(graph, Graph):
        remedy = remedy_for(graph) or "Read a model with load(...) first"
        raise AcceleratorError(f"{type(graph).__name__} is not a Graph", where=where, remedy=remedy)
    return graph


def _checked_types(graph: Graph) -> Graph:
    """The typed graph, with declared types replaced where inferred ones contradict them."""
    if isinstance(graph.attrs.get("shape"), TypeView):
        return graph
    return infer(graph, strict=False, check_declared=False, check_fits=True)


def live_part(graph: Graph) -> Graph:
    """The graph without the nodes that no output needs."""
    return apply_pass(graph, "EliminateDead", verify=False)


def dead_nodes(graph: Graph, live: Graph) -> dict[str, str]:
    """The nodes of the graph that its live part lacks, with the reason."""
    return {node.name: "no output needs it" for node in graph.nodes if node.name not in live}


LIMIT = 1 << 30
"""Maximum size in bytes of the outputs of a folded op."""

FACTOR = 8
"""Maximum ratio of the size of a folded op's outputs to that of its inputs, above a mebibyte. 4-bit weights, which take a
byte each in memory, may so become float64."""


def computable(graph: Graph, names: Collection[str]) -> frozenset[str]:
    """Those of the ops that numpy computes from constants alone."""
    ops = [node for node in ops_of_constants(graph) if node.name in names]
    if not ops:
        return frozenset()
    return _gone(_folded(graph, _with_what_they_read(ops)), {node.name for node in ops})


def with_constants_computed(graph: Graph, placement: Placement) -> Graph:
    """The placed graph with those ops folded that read only constants and that no other op of their device reads.
    Their names are added to `placement.computed`."""
    alone = _left_alone(graph, placement)
    if not alone:
        return graph
    folded = _folded(graph, alone)
    placement.computed |= _gone(folded, {node.name for node in alone})
    return apply_pass(folded, "EliminateDead", verify=False)


def _folded(graph: Graph, ops: Collection[Node]) -> Graph:
    only = {node.name for node in ops}
    return apply_pass(graph, "FoldConstants", verify=False, limit=LIMIT, factor=FACTOR, shapes=False, only=only)


def _gone(folded: Graph, names: Collection[str]) -> frozenset[str]:
    return frozenset(name for name in names if name not in folded or not folded[name].is_op)


def _left_alone(graph: Graph, placement: Placement) -> list[Node]:
    """The ops with only constant inputs that their device refuses, or that make no output and that it would not run together with
    an op that reads more, and the ops that these read. Linear."""
    ops = ops_of_constants(graph)
    if not ops:
        return []
    readers: dict[Node, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for entry in node.reads:
            if entry.node in ops:
                readers[entry.node].append(node)
    outputs, joined = {entry.node for entry in graph.outputs}, set[Node]()
    for node in reversed(ops):
        others = [other for other in readers[node] if other.affinity == node.affinity and not is_made_call(other)]
        stays = node in outputs or any(other in joined or other not in ops for other in others)
        if stays and not placement.is_refused(node.name):
            joined.add(node)
    return _with_what_they_read([node for node in ops if node not in joined])


def _with_what_they_read(ops: Sequence[Node]) -> list[Node]:
    """The ops and, transitively, the ops that they read."""
    reached = dict.fromkeys(ops)
    waiting = list(ops)
    while waiting:
        for entry in waiting.pop().reads:
            if entry.node.is_op and entry.node not in reached:
                reached[entry.node] = None
                waiting.append(entry.node)
    return list(reached)
