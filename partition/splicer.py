"""A rewrite of the graph that replaces each group by its call, in the order that the checker found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_not
from typing import Any

from partita.graph.attributes import number_range
from partita.graph.build import CALL, CALL_DOMAIN, NOT_INLINED
from partita.graph.control_dependencies import noted_after
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.node import Node, NodeEntry, call_like
from partita.graph.ops.schemas import spec_of
from partita.graph.order import sources, topological
from partita.partition.calls import BuiltCall, Chosen, check_reads
from partita.partition.errors import not_a
from partita.partition.op_index import OpIndex


def splice(index: OpIndex, chosen: Sequence[Chosen], order: Sequence[int], adjusted: dict[int, Node]) -> Graph:
    """The graph with these calls in place of their groups. Linear.

    `order` is topological: v for an op outside, ~k for chosen[k]."""
    with collector_paused():
        splicer = _Splicer(index, chosen, adjusted)
        for unit in order:
            if unit >= 0:
                splicer.keep(unit)
            else:
                splicer.put_call(chosen[~unit])
        return splicer.finish()


PLAIN = Node("", CALL, domain=CALL_DOMAIN)
"""A call as a property makes it that overrides no hook, of no body yet."""

PLAIN_NOT_INLINED = PLAIN.evolve(metadata=NOT_INLINED)
"""The same of a property whose calls are not inlined."""

Values = tuple[NodeEntry, ...] | dict[int, NodeEntry]
"""New values by index of the output."""


class _Splicer:
    def __init__(self, index: OpIndex, chosen: Sequence[Chosen], adjusted: dict[int, Node]) -> None:
        self.index = index
        self.chosen = chosen
        self.adjusted = adjusted
        self.kept: list[Node] = []
        self.foreign = bool(adjusted)  # True if hooks may have added nodes that the index lacks
        self.nodes: dict[Node, Node] = {}  # old node -> new node, if it changed or is inside a call; if control is of matter
        self.is_controlled = any(node.after for node in index.nodes)
        self.values: dict[Node, Values] = {}  # their new values, by index of the output
        self.value_names: set[str] | None = None  # all value names, computed on demand

    def value(self, entry: NodeEntry) -> NodeEntry:
        """The new graph's value for a value of the old graph."""
        values = self.values.get(entry.node)
        return entry if values is None else values[entry.index]

    def keep(self, v: int) -> None:
        """Keeps an op outside of calls, reading the new values."""
        old = self.index.nodes[v]
        base = self.adjusted.get(v, old) if self.adjusted else old
        new = self.values.get
        inputs = [e if e is None or (values := new(e.node)) is None else values[e.index] for e in old.inputs]
        rebuilt = base.reading(tuple(inputs)) if any(map(is_not, inputs, old.inputs)) else base
        bound = self._bound(old, base) if old.captures or old.after else None
        if bound:
            rebuilt = rebuilt.evolve(**bound)
        if rebuilt is not old:
            self.values[old] = (NodeEntry(rebuilt),) if len(rebuilt.output_names) == 1 else rebuilt.outputs
            if self.is_controlled:
                self.nodes[old] = rebuilt
        self.kept.append(rebuilt)

    def _bound(self, old: Node, base: Node) -> dict[str, Any]:
        """The changes to a node's captures and control dependencies."""
        changes: dict[str, Any] = {}
        if old.captures:
            changes["captures"] = tuple(map(self.value, old.captures))
        if any(other in self.nodes for other in old.after):
            changes["after"] = self._after(old.after)
            if any(self.nodes.get(other, other).name != other.name for other in old.after):
                changes["metadata"] = noted_after(base)
        return changes

    def _after(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        return tuple(dict.fromkeys(self.nodes.get(other, other) for other in nodes))

    def put_call(self, chosen: Chosen) -> None:
        """Inserts a group's call, connected."""
        built = chosen.built
        assert built is not None
        nodes, draft = self.index.nodes, built.draft
        members = [nodes[v] for v in chosen.members]
        new = self.values.get
        entries = tuple([e if (values := new(e.node)) is None else values[e.index] for e in draft.entries])
        exits = [(nodes[v], i) for v, i in draft.exits]
        slots: Sequence[int] = range(len(exits))
        if built.node is None:
            call = self._plain_call(chosen, built, entries, exits, members)
        else:
            call, slots = self._connect(chosen, built, built.node, entries, members)
        for (old, i), slot in zip(exits, slots, strict=True):
            if len(old.output_names) == 1:
                self.values[old] = (NodeEntry(call, slot),)
            else:
                self.values.setdefault(old, {})[i] = NodeEntry(call, slot)  # type: ignore[index]
        if self.is_controlled:
            self.nodes.update(dict.fromkeys(members, call))
        self.kept.append(call)

    def _plain_call(
        self,
        chosen: Chosen,
        built: BuiltCall,
        entries: tuple[NodeEntry, ...],
        exits: Sequence[tuple[Node, int]],
        members: Sequence[Node],
    ) -> Node:
        """The call that a property makes which overrides no hook."""
        template = PLAIN if chosen.hooks.property.inline else PLAIN_NOT_INLINED
        call = call_like(template, built.body, chosen.name, entries, exits, members[0].place, chosen.device)
        after = self._after_group(members) if self.is_controlled else ()
        return call.evolve(after=after) if after else call

    def _after_group(self, members: Sequence[Node]) -> tuple[Node, ...]:
        """The control dependencies of a group's call."""
        after = [other for member in members if member.after for other in member.after]
        inside = set(members) if after else ()
        return self._after(other for other in after if other not in inside)

    def _connect(
        self, chosen: Chosen, built: BuiltCall, node: Node, entries: tuple[NodeEntry, ...], members: list[Node]
    ) -> tuple[Node, Sequence[int]]:
        """The property's node, connected, and for each value that leaves the subgraph the output of the node that replaces it."""
        hooks, draft, first = chosen.hooks, built.draft, members[0]
        changes: dict[str, Any] = {"place": first.place}
        reads = node.reads
        if reads:
            self.foreign = True  # the node may have a new constant
            inputs = tuple([None if e is None else self.value(e) for e in node.inputs])
            node = node.evolve(inputs=inputs, captures=tuple(map(self.value, node.captures)))
        if hooks.overrides("connect_subgraph_inputs"):
            self.foreign = True
            node = self._connected(chosen, node, entries, members)
        elif not reads:
            changes["inputs"] = entries
        self._check_count(chosen, node, changes.get("inputs", node.inputs), first)
        slots: Sequence[int] = range(len(draft.exits))
        if hooks.overrides("connect_subgraph_outputs"):
            slots = self._outputs(chosen, built, node, first)
        names, types = list(node.output_names), list(node.output_types)
        for (v, i), slot, shown in zip(draft.exits, slots, built.body.outputs, strict=True):
            names[slot] = self.index.nodes[v].output_names[i]
            types[slot] = types[slot] or shown.type
        for slot in sorted(set(range(len(names))).difference(slots)):
            names[slot] = self._free(names[slot])
        changes["output_names"], changes["output_types"] = tuple(names), tuple(types)
        if node.name != built.name:
            changes["name"] = built.name
        if node.affinity is None and chosen.device is not None:
            changes["affinity"] = chosen.device
        after = self._after_group(members)
        if after:
            changes["after"] = after
        return node.evolve(**changes), slots

    def _free(self, name: str) -> str:
        """The name of a call's output that stands for no value of the subgraph, made unique."""
        if not name:
            return name
        if self.value_names is None:
            calls = [chosen.built.node for chosen in self.chosen if chosen.built is not None and chosen.built.node is not None]
            self.value_names = {value for node in self.index.graph.nodes for value in node.output_names}
            self.value_names.update([entry.name for call in calls for entry in call.reads])
        return unique(name, self.value_names)

    def _connected(self, chosen: Chosen, created: Node, entries: tuple[NodeEntry, ...], members: list[Node]) -> Node:
        """The node, connected by `connect_subgraph_inputs`."""
        hooks, hook, first = chosen.hooks, "connect_subgraph_inputs", members[0]
        node = hooks.call(hook, first, hooks.property.connect_subgraph_inputs, created, entries)
        if not isinstance(node, Node):
            raise hooks.error(hook, first, not_a("a Node", node))
        if len(node.output_names) != len(created.output_names):
            raise hooks.error(hook, first, "it returned a node with another number of outputs")
        check_reads(hooks, hook, first, node, set(entries), set(members))
        return node

    def _check_count(self, chosen: Chosen, node: Node, inputs: Sequence[NodeEntry | None], first: Node) -> None:
        """Checks the number of inputs: of a call against its body, which a hook may have replaced, else against its schema."""
        connects = chosen.hooks.overrides("connect_subgraph_inputs")
        hook = "connect_subgraph_inputs" if connects else "create_subgraph_node"
        if node.subgraph is not None:
            wanted = len(node.subgraph.inputs)
            if len(inputs) != wanted:
                cause = f"it returned a call whose body has {wanted} inputs; connected are {len(inputs)}"
                raise chosen.hooks.error(hook, first, cause)
        elif node.domain in self.index.graph.opsets:
            spec = spec_of(node.op or "", node.domain, self.index.graph.opsets[node.domain])
            if spec is not None and not spec.min_inputs <= len(inputs) <= spec.max_inputs:
                wanted_range = number_range(spec.min_inputs, spec.max_inputs)
                cause = f"it returned a {node.op}, which takes {wanted_range} inputs; connected are {len(inputs)}"
                remedy = "Return the op with its inputs, read from subgraph.inputs, or a call"
                raise chosen.hooks.error(hook, first, cause, remedy)

    def _outputs(self, chosen: Chosen, built: BuiltCall, node: Node, first: Node) -> list[int]:
        """For each value that leaves the subgraph, the index of the node's output that replaces it."""
        hooks, hook, wanted = chosen.hooks, "connect_subgraph_outputs", len(built.draft.exits)
        kind = f"{wanted} values of the node"
        entries = hooks.call_for_list(hook, first, kind, hooks.property.connect_subgraph_outputs, node, built.body.outputs)
        if len(entries) != wanted or not all(isinstance(e, NodeEntry) and e.node is node for e in entries):
            raise hooks.error(hook, first, not_a(kind, entries))
        slots = [entry.index for entry in entries]
        beyond = [slot for slot in slots if not 0 <= slot < len(node.output_names)]
        if beyond:
            raise hooks.error(hook, first, f"it returned output {beyond[0]} of a node that has {len(node.output_names)}")
        if len(set(slots)) < len(slots):
            raise hooks.error(hook, first, "it returned the same output of the node for two values of the subgraph")
        return slots

    def finish(self) -> Graph:
        """The new graph. Constants that only the bodies read are removed; those that nothing ever read are kept."""
        graph = self.index.graph
        outputs = [self.value(entry) for entry in graph.outputs]
        constants = [node for node in graph.nodes if node.value is not None]
        if constants:
            before = {source for node in self.index.nodes for source in sources(node)}
            now = {entry.node for node in self.kept for entry in node.reads}.union(entry.node for entry in outputs)
            constants = [node for node in constants if node not in before or node in now or "onnx.input" in node.metadata]
        if self.foreign:
            return graph.evolve(outputs=outputs, nodes=[*self.kept, *constants])
        nodes = topological([*graph.inputs, *constants, *self.kept])
        names, metadata = graph.output_names, graph.metadata
        return Graph.assembled(nodes, graph.inputs, outputs, graph.name, graph.opsets, names, metadata)
