"""A locked plan: the device of each op as a small file of text, to keep beside a model and to compile by."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.inlining import without_calls
from partita.accelerators.placement.placement import Placement
from partita.accelerators.placement.placing import computable, live_part, query
from partita.accelerators.process.atomic import write_text
from partita.accelerators.process.json_form import form_error
from partita.graph.errors import ReadError
from partita.graph.formatting import listed
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import with_affinities

VERSION = 1
"""The version of the JSON form."""

SHOWN = 3
"""The number of names that an error lists."""

_FORM = {
    "partita_lock": int, "graph": str, "devices": [str], "inlined": [[str]], "computed": [str],
    "nodes": {str: {"op": str, "device": str, "types": [str]}},
}

MAX_NODES, CUTS = "max_nodes", "cuts"
"""The names of the parts that only some plans have."""

_SOME = {MAX_NODES: int, CUTS: [str]}
"""Their forms."""

WROTE = "Give a file that `partita place --lock` or placement.lock wrote"
"""The remedy for a file that is not a plan."""

CHECK = "`partita plan --check` lists the differences; `partita place --lock` makes a new plan"
"""The remedy for a plan of another graph."""


@attrs.frozen(slots=True)
class LockedNode:
    """One op of a locked plan."""

    op: str
    """Its op."""
    device: str
    """Its device."""
    types: tuple[str, ...]
    """The types of its outputs."""

    def makes(self, types: Sequence[str]) -> bool:
        """True if outputs of these types are those of the plan, or have sizes in place of symbols."""
        pairs = [(_dims(before), _dims(now)) for before, now in zip(self.types, types)]
        return len(types) == len(self.types) and all(
            len(before) == len(now) and all(a == b or (i and not a.isdigit()) for i, (a, b) in enumerate(zip(before, now)))
            for before, now in pairs
        )


@attrs.frozen(slots=True)
class LockedPlan:
    """The devices of a graph's ops, and what identifies these ops."""

    graph_name: str
    """The graph's name."""
    devices: tuple[str, ...]
    """The devices of the placement, the preferred one first."""
    inlined: tuple[tuple[str, ...], ...]
    """The calls that were inlined, outer ones before those that came out of them."""
    computed: frozenset[str]
    """The ops that are computed while compiling."""
    nodes: Mapping[str, LockedNode]
    """The ops by name, in the graph's order."""
    max_nodes: int | None = None
    """Maximum number of ops of a subgraph; None: the devices decide."""
    cuts: tuple[str, ...] = ()
    """The ops before which subgraphs are cut."""

    @classmethod
    def of(cls, placement: Placement) -> LockedPlan:
        """The plan of a placement."""
        ops = {name: placement.graph[name] for name in placement}
        nodes = {name: LockedNode(_title(node), placement[name], _types(node)) for name, node in ops.items()}
        computed = frozenset(placement.computed)
        shape = placement.max_nodes, placement.cuts
        return cls(placement.graph.name, placement.devices, placement.rounds, computed, nodes, *shape)

    def to_json(self) -> str:
        """The plan as text, identical for equal placements."""
        content = {
            "partita_lock": VERSION, "graph": self.graph_name, "devices": self.devices, "inlined": self.inlined,
            "computed": sorted(self.computed), "nodes": {name: attrs.asdict(node) for name, node in self.nodes.items()},
            **({} if self.max_nodes is None else {MAX_NODES: self.max_nodes}), **({CUTS: self.cuts} if self.cuts else {}),
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan into a file."""
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LockedPlan:
        """The plan in a file that `save` wrote."""
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ReadError(f"no plan can be read from it: {error}", where=str(path), remedy=WROTE) from error
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: str, where: str) -> LockedPlan:
        """The plan in the output of `to_json`."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ReadError(f"no plan can be read from it: {error}", where=where, remedy=WROTE) from error
        some = {name: form for name, form in _SOME.items() if isinstance(content, dict) and name in content}
        wrong = form_error(content, {**_FORM, **some})
        if wrong is None and content.get(MAX_NODES, 1) < 1:
            wrong = f"its {MAX_NODES} is {content[MAX_NODES]}"
        if wrong is None and content["partita_lock"] != VERSION:
            wrong = "this is not a version of a locked plan that is known"
        if wrong is None:
            found = [
                f"nodes.{name}.device is {row['device']!r}, which is none of its devices"
                for name, row in content["nodes"].items() if row["device"] not in content["devices"]
            ]
            for part, meaning in (("computed", "computed"), (CUTS, "where a subgraph is cut")):
                strange = [name for name in content.get(part, ()) if name not in content["nodes"]]
                found += [f"{name!r} is {meaning}, and none of its nodes" for name in strange]
            wrong = next(iter(found), None)
        if wrong is not None:
            raise ReadError(f"it is not a locked plan: {wrong}", where=where, remedy=WROTE)
        nodes = {name: LockedNode(row["op"], row["device"], tuple(row["types"])) for name, row in content["nodes"].items()}
        rounds = tuple(tuple(names) for names in content["inlined"])
        computed = frozenset(content["computed"])
        shape = content.get(MAX_NODES), tuple(content.get(CUTS, ()))
        return cls(content["graph"], tuple(content["devices"]), rounds, computed, nodes, *shape)

    def with_devices(self, where: Mapping[str, str]) -> LockedPlan:
        """The plan with the ops on other devices."""
        return attrs.evolve(self, nodes={name: attrs.evolve(node, device=where[name]) for name, node in self.nodes.items()})

    def apply(self, graph: Graph) -> Graph:
        """The graph with the devices of the plan as affinities; an error if its ops have other names or kinds."""
        graph = without_calls(graph, self.inlined)
        ops = {node.name: node for node in live_part(graph).nodes if node.is_op}
        lost = [name for name in self.nodes if name not in ops]
        new = [name for name in ops if name not in self.nodes]
        other = [name for name, node in self.nodes.items() if name in ops and _title(ops[name]) != node.op]
        for names, what in ((lost, "it lacks"), (new, "it also has"), (other, "it has other ops for")):
            if names:
                raise self._other(graph, f"{what} {listed(names, SHOWN)}")
        return with_affinities(graph, {name: node.device for name, node in self.nodes.items() if name in graph})

    def check_types(self, graph: Graph) -> None:
        """Checks that the ops of a typed graph, to which the plan was applied, make what they made for the plan."""
        other = [name for name, node in self.nodes.items() if not node.makes(_types(graph[name]))]
        if other:
            before, now = ", ".join(self.nodes[other[0]].types), ", ".join(_types(graph[other[0]]))
            raise self._other(graph, f"{other[0]!r} made {before}, and makes {now}")

    def _other(self, graph: Graph, cause: str) -> AcceleratorError:
        cause = f"the plan was made for another graph (its name was {self.graph_name!r}): {cause}"
        return AcceleratorError(cause, where=f"graph {graph.name!r}, option plan", remedy=CHECK)

    def differences(self, graph: Graph, config: Mapping[str, Any] | None = None) -> list[str]:
        """The differences of the graph from the plan, and of the devices' answers, one a line; empty if the plan still holds."""
        lines = []
        for names in self.inlined:
            calls = [name for name in names if name in graph and graph[name].is_call]
            lines += [f"- {name}: it was a call that was inlined, and the graph has none" for name in names if name not in calls]
            graph = without_calls(graph, [calls])
        now = query(graph, list(self.devices), config=config, partial=True)
        ops = {node.name: node for node in now.graph.nodes if node.is_op}
        computed = computable(now.graph, self.computed)
        for name, before in self.nodes.items():
            title = f"{name} ({before.op}"
            if name in now.inlined:
                lines.append(f"! {title}): {before.device} does not take it whole")
            elif name not in ops:
                lines.append(f"- {title} on {before.device}): the graph lacks it")
        lines += [f"+ {name} ({_title(node)}): the plan lacks it" for name, node in ops.items() if name not in self.nodes]
        for name, before in self.nodes.items():
            if name not in ops:
                continue
            op, types = _title(ops[name]), _types(ops[name])
            if op != before.op:
                lines.append(f"! {name}: it was {before.op}, and is {op}")
            elif not before.makes(types):
                lines.append(f"! {name} ({op}): it made {', '.join(before.types)}, and makes {', '.join(types)}")
            elif name in self.computed and name not in computed:
                lines.append(f"! {name} ({op}): it was computed while compiling, and is not")
            elif name not in self.computed and before.device not in now.able(name):
                lines.append(f"! {name} ({op}): {before.device} does not run it: {now.reason(name, before.device)}")
        return lines


def _title(node: Node) -> str:
    return f"{node.domain}::{node.op}" if node.domain else str(node.op)


def _types(node: Node) -> tuple[str, ...]:
    return tuple(str(entry.type) for entry in node.outputs)


def _dims(kind: str) -> list[str]:
    """The element type and the sizes in the text of a type."""
    return re.split(r"[\[,\]] ?", kind)
