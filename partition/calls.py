"""Makes unconnected calls of groups: the body, the property's review, the node that it creates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.graph.build import NOT_INLINED
from partita.graph.errors import GraphError
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.partition.bodies import BodyDraft, add_inputs, build_body, deferred_body, draft_body, find_exits
from partita.partition.hooks import Chooser, Hooks
from partita.partition.names import op_names_in, with_own_names
from partita.partition.op_index import OpIndex
from partita.partition.with_types import Typed


@attrs.define(slots=True, eq=False)
class Chosen:
    """One group of a property, with the name of its call."""

    order: int
    """The index of the property that chose it."""
    index: int
    """Its index among the property's groups, by the position of its first node."""
    device: str | None
    """The common affinity of its nodes."""
    members: list[int]
    """Its ops, ascending."""
    name: str
    """The call's name, unique in the graph."""
    hooks: Hooks
    """The hooks that make its call."""
    dedup: bool = True
    """True if each outer value enters only once."""
    selector: Chooser | None = None
    """The selector that grew it, or the pattern that matched; None for a plan from a file."""
    built: BuiltCall | None = None
    """Its call, once it is built."""


@attrs.define(slots=True, eq=False)
class BuiltCall:
    """A call that is not connected yet."""

    name: str
    """The final name of its node."""
    body: Graph
    """The body passed to the property."""
    draft: BodyDraft
    """The values that enter and leave the subgraph."""
    node: Node | None = None
    """The node that the property made; None for a plain call, which is made as it is connected."""


class CallMaker:
    """Makes the calls of one graph."""

    def __init__(self, index: OpIndex, taken: set[str], typed: Typed) -> None:
        self.index = index
        """The graph that hooks see, with types."""
        self.given = index
        """The original graph."""
        self._declared: Declared | None = None
        if typed.graph is not typed.source:
            self.given = index.of(typed.source)
            self._declared = Declared(typed)
        self.adjusted: dict[int, Node] = {}
        """Nodes that remain in the graph, changed by `adjust_subgraph_node`."""
        self.notes = list(typed.notes)
        """Notes for the report."""
        self._taken = taken
        self._connecting = Connecting(index.graph, taken)

    def make(self, groups: Sequence[Chosen]) -> dict[int, str]:
        """Makes the calls of these groups. -> by position, the hook that declined a group."""
        declined = {}
        exits = find_exits(self.index, [chosen.members for chosen in groups])
        for k, chosen in enumerate(groups):
            hooks = chosen.hooks
            index = self.index if hooks.sees_bodies else self.given
            draft = draft_body(index, chosen.members, exits[k], chosen.dedup)
            if hooks.is_plain:
                chosen.built = BuiltCall(chosen.name, deferred_body(index, draft, chosen.name), draft)
                continue
            add_inputs(index, draft)
            hook = self._make_one(chosen, draft)
            if hook is not None:
                declined[k] = hook
            if hooks.sees_bodies:
                self._check_affinities(chosen)
        return declined

    def _make_one(self, chosen: Chosen, draft: BodyDraft) -> str | None:
        """Makes the call. -> the hook that declined it, or None."""
        hooks, first = chosen.hooks, self.index.nodes[chosen.members[0]]
        if hooks.overrides("init_subgraph_inputs"):
            draft.variables = hooks.init_inputs(draft.variables, draft.entries, first)
            draft.foreign = True
        body = self._body(chosen, draft, first)
        extra = hooks.review(body, chosen.index, first)
        if extra is None:
            return "review_subgraph"
        node = hooks.create(body, chosen.index, first, chosen.selector)
        if node is None:
            self._adjust(chosen)
            return "create_subgraph_node"
        if self._declared is not None and node.reads:
            node = self._declared.shown(node)
        self._check_created(chosen, node, draft, first)
        if node.reads:
            node = self._connecting.connected(hooks, node, draft, body, first)
        if node.subgraph is not None and node.subgraph is not body:  # the property replaced the body
            own = op_names_in(*graphs_in(body))
            node = node.evolve(subgraph=with_own_names(node.subgraph, own, self._taken))
        if self._declared is not None and hooks.sees_bodies:
            node, draft = self._undone(self._declared, node, draft)
        node = self._titled(chosen, node, extra)
        chosen.built = BuiltCall(node.name, body, draft, node)
        return None

    @staticmethod
    def _undone(declared: Declared, node: Node, draft: BodyDraft) -> tuple[Node, BodyDraft]:
        """The node and the values that enter it, without the types that were inferred for the hooks."""
        node = node.evolve(
            inputs=tuple(map(declared.input, node.inputs)),
            captures=tuple(map(declared.entry, node.captures)),
            subgraph=None if node.subgraph is None else declared.body(node.subgraph),
        )
        return node, attrs.evolve(draft, entries=list(map(declared.entry, draft.entries)))

    def _body(self, chosen: Chosen, draft: BodyDraft, first: Node) -> Graph:
        try:
            return build_body(self.index if chosen.hooks.sees_bodies else self.given, draft, chosen.name)
        except GraphError as error:
            if not draft.foreign:
                raise
            cause = f"with the inputs that it returned the body is not a graph: {error.cause}"
            raise chosen.hooks.error("init_subgraph_inputs", first, cause, error.remedy) from error

    def _titled(self, chosen: Chosen, node: Node, extra: Mapping[str, Any]) -> Node:
        """The node with its final name and the attributes from the review."""
        changes: dict[str, Any] = {}
        if node.name not in ("", chosen.name, f"{chosen.hooks.name}_{chosen.index}"):
            changes["name"] = unique(node.name, self._taken)
        elif node.name != chosen.name:
            changes["name"] = chosen.name
        if extra:
            changes["attrs"] = {**node.attrs, **extra}
        if node.subgraph is not None and not chosen.hooks.property.inline:
            changes["metadata"] = {**node.metadata, **NOT_INLINED}
        return node.evolve(**changes) if changes else node

    def _adjust(self, chosen: Chosen) -> None:
        nodes = [self.index.nodes[v] for v in chosen.members]
        adjusted = chosen.hooks.adjust(nodes, chosen.index, chosen.selector)
        for v, old, new in zip(chosen.members, nodes, adjusted, strict=True):
            if new is not old:
                self.adjusted[v] = new if self._declared is None else self._declared.adjusted(old, new)

    def _check_created(self, chosen: Chosen, node: Node, draft: BodyDraft, first: Node) -> None:
        """Checks that the node has as many outputs as the body, the same device, and no control dependencies."""
        hooks, hook = chosen.hooks, "create_subgraph_node"
        hooks.check_device(hook, first, node)
        given, wanted = len(node.output_names), len(draft.exits)
        if given != wanted and not hooks.overrides("connect_subgraph_outputs"):
            raise hooks.error(
                hook,
                first,
                f"it returned a node with {given} outputs for a subgraph with {wanted}",
                "Make as many outputs as the subgraph has (n_outputs=), or override connect_subgraph_outputs",
            )
        check_order(hooks, hook, first, node)

    def _check_affinities(self, chosen: Chosen) -> None:
        nodes, then = self.index.nodes, self.index.affinity
        if any(nodes[v].affinity != then[v] for v in chosen.members):
            chosen.hooks.witness.check(chosen.hooks.name, "create_subgraph_node")


def check_order(hooks: Hooks, hook: str, first: Node, node: Node) -> None:
    """Raises if a hook's node has control dependencies: they come from the subgraph's nodes."""
    if node.after:
        cause = f"it returned a node with control dependencies of its own: after {node.after[0].name!r}"
        raise hooks.error(hook, first, cause, "The call gets those of the subgraph's nodes")


def check_reads(hooks: Hooks, hook: str, first: Node, node: Node, allowed: set[NodeEntry], inside: set[Node]) -> None:
    """Raises if a call reads anything but the subgraph's inputs, graph inputs and constants: it could depend on itself."""
    check_order(hooks, hook, first, node)
    for entry in node.reads:
        if entry in allowed or entry.node.is_variable or entry.node.is_constant:
            continue
        own = entry.node in inside or entry.node.name == node.name
        cause = "reads its own output" if own else "reads what the subgraph does not read"
        raise hooks.error(hook, first, f"it returned a node that {cause}: %{entry.name}", UNCONNECTED)


UNCONNECTED = "Leave the node unconnected; connect_subgraph_inputs connects it to the values that the subgraph reads"
SEVERAL = "One node replaces the subgraph; to put several ops in its place, return call(Graph([output], inputs)) of them"
EACH = "Read each input of the subgraph, or none: a node without inputs is connected to all of them, as a call is"


class Connecting:
    """Connects the nodes of one graph's properties."""

    def __init__(self, graph: Graph, taken: set[str]) -> None:
        self._graph = graph
        self._taken = taken
        self._values: set[str] | None = None
        self._brought: dict[Node, Node] = {}

    def connected(self, hooks: Hooks, node: Node, draft: BodyDraft, body: Graph, first: Node) -> Node:
        """The node reading the graph's values: the outer value for each of the body's inputs; constants stay.

        It has to read each of the body's inputs, unless the property connects its nodes itself."""
        outer = dict(zip(draft.variables, draft.entries, strict=True))
        allowed = set(draft.entries)
        inner = {inside.name for inside in body.nodes if inside.is_op}
        leaving = {entry.name for entry in body.outputs}
        for entry in node.reads:
            if entry.node not in outer and entry not in allowed and not entry.node.is_constant:
                cause = self._wrong(entry, node, inner, leaving)
                if cause is not None:
                    remedy = UNCONNECTED if entry.node.name else SEVERAL
                    raise hooks.error("create_subgraph_node", first, f"it returned a node that {cause}", remedy)

        def mapped(entry: NodeEntry) -> NodeEntry:
            if entry.node.is_constant:
                return NodeEntry(self._constant(entry.node), entry.index)
            return outer.get(entry.node, entry)

        inputs = tuple([None if entry is None else mapped(entry) for entry in node.inputs])
        connected = node.evolve(inputs=inputs, captures=tuple(map(mapped, node.captures)))
        if not hooks.overrides("connect_subgraph_inputs"):
            read = set(connected.reads)
            missing = [v.name for v, entry in zip(draft.variables, draft.entries, strict=True) if entry not in read]
            if missing:
                cause = f"it returned a node that reads something, and not the subgraph's inputs {', '.join(missing)}"
                raise hooks.error("create_subgraph_node", first, cause, f"{EACH}; or override connect_subgraph_inputs")
        return connected

    def _wrong(self, entry: NodeEntry, node: Node, inner: set[str], leaving: set[str]) -> str | None:
        """The reason why the node must not read this value, or None."""
        if entry.node.is_variable:
            if entry.node in self._graph.index.number:
                return None
            return f"reads %{entry.name}, which is neither an input of the subgraph nor one of the graph"
        if not entry.node.name:
            return f"reads another new op, a {entry.node.op}"
        if entry.node.name == node.name or (entry.node.name in inner and entry.name in leaving):
            return f"reads its own output: %{entry.name}"
        if entry.node.name in inner:
            return f"reads %{entry.name}, which is computed inside the subgraph that the node replaces"
        return f"reads what the subgraph does not read: %{entry.name}"

    def _constant(self, node: Node) -> Node:
        """The constant, renamed if the property added it under a name that is taken."""
        if node in self._graph.index.number or not node.name:
            return node
        if node not in self._brought:
            if self._values is None:
                self._values = {name for known in self._graph.nodes for name in known.output_names}
            name, value = unique(node.name, self._taken), unique(node.output_names[0], self._values)
            same = (name, value) == (node.name, node.output_names[0])
            self._brought[node] = node if same else node.evolve(name=name, output_names=(value,))
        return self._brought[node]


class Declared:
    """The original nodes of the typed copy that hooks see: types that were inferred for hooks are not part of the result.

    Nodes are identified by their names, which copies keep."""

    def __init__(self, typed: Typed) -> None:
        pairs = [(copy, own) for copy, own in zip(typed.graph.nodes, typed.source.nodes, strict=True) if copy is not own]
        self._own = dict(pairs)
        self._copies = {own: copy for copy, own in pairs}
        self._pairs = {own.name: (copy, own) for copy, own in pairs}

    def entry(self, entry: NodeEntry) -> NodeEntry:
        """The original graph's value for one of the copy."""
        own = self._own.get(entry.node)
        return entry if own is None else NodeEntry(own, entry.index)

    def shown(self, node: Node) -> Node:
        """A hook's node, reading the copy's values instead of the original graph's: a hook may have kept the latter."""

        def copied(entry: NodeEntry) -> NodeEntry:
            copy = self._copies.get(entry.node)
            return entry if copy is None else NodeEntry(copy, entry.index)

        inputs = tuple([None if entry is None else copied(entry) for entry in node.inputs])
        return node.evolve(inputs=inputs, captures=tuple(map(copied, node.captures)))

    def input(self, entry: NodeEntry | None) -> NodeEntry | None:
        """Like `entry`, for an input, which may be absent."""
        return None if entry is None else self.entry(entry)

    def adjusted(self, copy: Node, changed: Node) -> Node:
        """The node that a hook made from a copied node, reading the original graph's values."""
        own = self._own.get(copy)
        if own is None:
            return changed
        return self._restored(changed, copy, own).evolve(inputs=own.inputs, captures=own.captures, after=own.after)

    def body(self, body: Graph) -> Graph:
        """A body whose ops have their original types, unless a hook changed them. Linear."""

        def visit(node: Node, rewriter: Rewriter) -> None:
            rebuilt = rewriter.rebuilt(node)
            pair = self._pairs.get(node.name) if node.is_op else None
            if pair is not None:
                rebuilt = self._restored(rebuilt, *pair)
            rewriter.keep(node, map_bodies(rebuilt, self.body))

        return rewrite(body, visit)

    @staticmethod
    def _restored(node: Node, copy: Node, own: Node) -> Node:
        changes: dict[str, Any] = {}
        for field in ("output_types", "attrs", "subgraph"):
            mine = getattr(own, field)
            if getattr(node, field) is getattr(copy, field) is not mine:
                changes[field] = mine
        return node.evolve(**changes) if changes else node
