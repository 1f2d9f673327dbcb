"""Placement: the device of each node, why the preferred ones do not run it, and means to change it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.device_list import Device, find_device
from partita.accelerators.interface.inlining import without_calls
from partita.accelerators.placement.rules import Rules
from partita.accelerators.placement.support_table import SupportTable, choose, unsupported
from partita.graph.build import is_made_call
from partita.graph.errors import GraphError, did_you_mean
from partita.graph.formatting import counted, first_of
from partita.graph.graph import Graph
from partita.graph.nested import bodies_of, graphs_in
from partita.graph.node import Node
from partita.graph.pictures.html import bundle, picture, table
from partita.graph.pictures.svg import notebook_svg
from partita.graph.pictures.tables import Tabular
from partita.graph.rewrite import with_affinities

if TYPE_CHECKING:
    from rich.table import Table


class NoSuchNode(GraphError, KeyError):
    """A placement has no op node of that name."""

    __str__ = GraphError.__str__


class Placement(Tabular, MutableMapping[str, str]):
    """The device of each op node by name. Assign to change it; `apply` writes it into a graph as affinities.

    Constants and inputs are not listed: they follow the nodes that read them."""

    max_nodes: int | None = None
    """Maximum number of ops of a compiled subgraph; None: the devices decide."""
    cuts: tuple[str, ...] = ()
    """The ops before which subgraphs are cut, so that values are freed earlier."""

    def __init__(
        self,
        table: SupportTable,
        devices: Sequence[Device],
        rules: Rules,
        where: dict[str, str],
        by_hand: Mapping[str, str],
        rounds: Sequence[Sequence[str]] = (),
        notes: Sequence[str] = (),
        homeless: Sequence[str] = (),
        computed: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = table.graph
        """The typed graph of the query, without the calls in `inlined`."""
        self.inlined = tuple(name for names in rounds for name in names)
        """The calls that no device except the last resort takes whole: the nodes of their bodies are placed individually."""
        self.notes = tuple(notes)
        """Notes on the calls that were inlined or kept whole, and on the device that decided it."""
        self.computed = computed
        """The ops with only constant inputs that are folded while compiling. They are listed, and need no device."""
        self.rounds = tuple(map(tuple, rounds))
        """The inlined calls, outer ones before those that came out of them."""
        self._table = table
        self._devices = tuple(devices)
        self._rules = rules
        self._where = where
        self._by_hand = dict(by_hand)
        self._homeless = tuple(homeless)

    @property
    def devices(self) -> tuple[str, ...]:
        """The requested devices, the preferred one first."""
        return tuple(device.label for device in self._devices)

    @property
    def requested(self) -> tuple[Device, ...]:
        """The requested devices, as their accelerators."""
        return self._devices

    @property
    def ops(self) -> int:
        """The number of ops that run on devices, counting those inside calls."""
        return sum(len(self._ops_of(self.graph[name])) for name in self._where if name not in self.computed)

    @property
    def pinned(self) -> tuple[str, ...]:
        """The nodes that `pin` forces onto their devices."""
        return tuple(self._rules.pinned)

    @property
    def unsupported(self) -> dict[str, dict[str, str]]:
        """The ops that no device runs (of `query(partial=True)`), each with every device's reason. They are not listed, and
        `apply` gives them no device; assigning one forces the op onto it."""
        names = [name for name in self._homeless if name not in self._where]
        return {name: {label: self.reason(name, label) for label in self.devices} for name in names}

    def __getitem__(self, name: str) -> str:
        if name not in self._where:
            raise self._unknown(name)
        return self._where[name]

    def __setitem__(self, name: str, device: str) -> None:
        if name not in self._where and name not in self._homeless:
            raise self._unknown(name)
        self._where[name] = find_device(device, self._devices, f"placement[{name!r}]").label
        self._by_hand[name] = "placed by hand"

    def __delitem__(self, name: str) -> None:
        raise AcceleratorError("every node has to be somewhere", where=f"placement[{name!r}]", remedy="Assign another device")

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def refusals(self, name: str) -> dict[str, str]:
        """The reason why each device that is preferred to the node's own does not run it."""
        label = None if name in self._homeless and name not in self._where else self[name]
        reasons: dict[str, str] = {}
        for preferred in self.devices:
            if preferred == label:
                break
            reasons[preferred] = self.reason(name, preferred)
        return reasons

    def reason(self, name: str, device: str) -> str:
        """The reason why a device does not run the node."""
        rule = self._rules.against(name, device)
        return rule or self._table.refusals(device).get(name) or self._by_hand.get(name) or "it would run it"

    def why(self, name: str) -> str:
        """The device of the node, and why it is not on the preferred devices."""
        refused = self.refusals(name)
        node = self.graph[name]
        label = self._where.get(name)
        if name in self.computed:
            return f"{name} ({node.op}) is computed while compiling, for it reads constants alone"
        head = f"{name} ({node.op}) is on {label or 'no device'}"
        if name in self._by_hand:
            head += f": {self._by_hand[name]}"
        elif not refused:
            head += ", the first device asked for, which runs it"
        return "\n".join([head, *(f"  not on {device}: {reason}" for device, reason in refused.items())])

    def is_refused(self, name: str) -> bool:
        """True if the node's own device does not run it: it is folded while compiling, or was forced."""
        return name in self._where and name in self._table.refusals(self._where[name])

    def has_other(self, name: str, label: str) -> bool:
        """True if a later device runs the node."""
        labels = [device.label for device in self._devices]
        return choose(name, self._devices[labels.index(label) + 1 :], self._table, self._rules) is not None

    def able(self, name: str) -> tuple[str, ...]:
        """The devices that may run the node, the preferred one first; the one that it is forced onto if there is one."""
        if name in self._by_hand:
            return (self._where[name],)
        return tuple(
            label for label in self.devices
            if self._rules.against(name, label) is None and name not in self._table.refusals(label)
        )

    def move(self, names: Sequence[str], away_from: str, reason: str) -> dict[str, str]:
        """Moves these nodes, since their device failed; returns their new devices. NotSupported if some node has none."""
        self._table.refuse(away_from, names, reason)
        choices = {name: choose(name, self._devices, self._table, self._rules) for name in names}
        nowhere = [self.graph[name] for name, label in choices.items() if label is None]
        if nowhere:
            raise unsupported(nowhere, self._devices, self._table, self._rules)
        moved = {name: label for name, label in choices.items() if label is not None}
        self._where.update(moved)
        for name in names:
            self._by_hand.pop(name, None)
        return moved

    def apply(self, graph: Graph) -> Graph:
        """The graph with copied op nodes, each with its device as affinity. Linear."""
        graph = without_calls(graph, self.rounds)
        missing = [name for name in self._where if name not in graph]
        if missing:
            raise AcceleratorError(
                f"the placement has {missing[0]!r}, which is not in the graph",
                where=f"graph {graph.name!r}",
                remedy="Apply it to the graph that query was given, or query again",
            )

        return with_affinities(graph, self._where)

    def lock(self, path: str | os.PathLike[str]) -> None:
        """Write the device of each op into a file, which `compile(graph, plan=path)` and `partita plan --check` take. Equal
        placements give equal files."""
        from partita.accelerators.placement.locked import LockedPlan  # upward: users lock by a method of the placement

        LockedPlan.of(self).save(path)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, including refusals of nodes that are not on the first device."""
        refused = {name: self.refusals(name) for name in self}
        unsupported = self.unsupported
        return {
            "graph": self.graph.name,
            "devices": list(self.devices),
            "nodes": dict(self._where),
            "refusals": {name: reasons for name, reasons in refused.items() if reasons},
            "inlined": list(self.inlined),
            **({"computed": [name for name in self if name in self.computed]} if self.computed else {}),
            **({"unsupported": unsupported} if unsupported else {}),
        }

    def to_table(self, most: int = 12) -> Table:
        """The number of ops of each device, and the refusals of preferred devices, as a rich table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table("device", "ops", "which, or why not", title=Text(f"{self.graph.name}: {counted(self.ops, 'op')}"))
        table.columns[1].justify = "right"
        for device, ops in self._ops_by_device().items():
            shown = ", ".join(f"{op} ×{n}" for op, n in ops.most_common(6)) + (", ..." if len(ops) > 6 else "")
            table.add_row(Text(device), str(ops.total()), Text(shown))
        if self.computed:
            table.add_row("computed", str(len(self.computed)), "while compiling, for they read constants alone")
        nobody = Counter(self.graph[name].op or "" for name in self.unsupported)
        if nobody:
            shown = ", ".join(f"{op} ×{n}" for op, n in nobody.most_common(6))
            table.add_row(Text("no device"), str(nobody.total()), Text(shown))
        reasons = self._reasons()
        if reasons:
            table.add_section()
        for (device, reason), count in reasons.most_common(most):
            table.add_row(Text(f"not on {device}"), str(count), Text(reason))
        if len(reasons) > most:
            table.add_row(f"... {len(reasons) - most} more reasons", "", "")
        return table

    def print(self) -> None:
        """Print the table."""
        import rich
        from rich.text import Text

        rich.print(self.to_table(), *map(Text, first_of(self.notes)))

    def __str__(self) -> str:
        lines = [f"{self.graph.name}: {counted(self.ops, 'op')}"]
        lines += [f"  {device}: {counted(ops.total(), 'op')}" for device, ops in self._ops_by_device().items()]
        if self.computed:
            lines.append(f"  computed while compiling: {counted(len(self.computed), 'op')}")
        lines += [f"  no device: {counted(len(self.unsupported), 'op')}"] if self.unsupported else []
        lines += [f"  not on {device}: {counted(n, 'op')}: {why}" for (device, why), n in self._reasons().most_common(12)]
        return "\n".join([*lines, *(f"  {note}" for note in first_of(self.notes))])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The representation for notebooks."""
        return bundle(self, placement_html(self))

    def __repr__(self) -> str:
        counts = Counter(self._where.values())
        return f"<Placement: {', '.join(f'{counts[d]} on {d}' for d in self.devices) or 'no ops'}>"

    def _ops_by_device(self) -> dict[str, Counter[str]]:
        counts: dict[str, Counter[str]] = {device: Counter() for device in self.devices}
        for name, device in self._where.items():
            if name not in self.computed:
                counts[device].update(self._ops_of(self.graph[name]))
        return counts

    @staticmethod
    def _ops_of(node: Node) -> list[str]:
        """The ops that run as this node: those of its body, if a partition made the call."""
        if not is_made_call(node) or node.subgraph is None:
            return [node.op or ""]
        return [inner.op or "" for inner in node.subgraph.nodes if inner.is_op]

    def _reasons(self) -> Counter[tuple[str, str]]:
        names = (*self._where, *self.unsupported)
        return Counter(refusal for name in names for refusal in self.refusals(name).items())

    def _unknown(self, name: str) -> GraphError:
        if name in self.graph and not self.graph[name].is_op:
            remedy = "Inputs and constants follow the nodes that read them"
            return NoSuchNode(f"{name!r} is not an op", where="placement", remedy=remedy)
        holder = self._holder_of(name)
        if holder is not None:
            cause = f"{name!r} is inside {holder.name!r} ({holder.op}), which is placed as a whole"
            return NoSuchNode(cause, where="placement", remedy=f"Ask about {holder.name!r}")
        remedy = did_you_mean(str(name), self._where) or "It lists the op nodes that some output needs"
        return NoSuchNode(f"there is no op node {name!r}", where="placement", remedy=remedy)

    def _holder_of(self, name: str) -> Node | None:
        """The placed node whose bodies contain an op of this name, at any depth."""
        for placed in self._where:
            node = self.graph[placed]
            if any(name in inner for body in bodies_of(node) for inner in graphs_in(body)):
                return node
        return None


def placement_html(placement: Placement) -> str:
    """Ops by device, reasons, and the graph in the devices' colours."""
    graph = placement.graph
    svg = notebook_svg(graph, lambda node: placement.get(node.name) if node.is_op else None)
    return placement_tables(placement) + ("" if svg is None else picture(svg, f"{graph.name}, coloured by device"))


def placement_tables(placement: Placement) -> str:
    ops: dict[str, Counter[str]] = {device: Counter() for device in placement.devices}
    reasons: Counter[tuple[str, str]] = Counter()
    for name, device in placement.items():
        ops[device][placement.graph[name].op or ""] += 1
        reasons.update(placement.refusals(name).items())
    rows = [
        (device, count.total(), ", ".join(f"{op} ×{n}" for op, n in count.most_common(6)) + (", …" if len(count) > 6 else ""))
        for device, count in ops.items()
    ]
    shown = table(("device", "ops", "which"), rows, title=f"{placement.graph.name}: {counted(placement.ops, 'op')}")
    if reasons:
        why = [(device, count, reason) for (device, reason), count in reasons.most_common()]
        shown += table(("not on", "ops", "because"), why, most=12)
    return shown
