"""Inlining of calls."""

from __future__ import annotations

from collections.abc import Callable

from partita.graph.control_dependencies import AFTER, note_out_of_call
from partita.graph.errors import GraphError
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter, map_bodies

LARGEST = 10_000_000
"""Maximum number of nodes of an inlined graph: functions that call functions can grow without bound."""

Wanted = Callable[[Node], bool]


def inline_calls(graph: Graph, wanted: Wanted | None = None) -> Graph:
    """The graph with all calls inlined (or those for which `wanted` is true), in bodies too.

    Nodes and values keep their names; one that is taken gets the call's name as a prefix. The graph's outputs keep theirs.
    Nodes keep their places, so an inlined partition has its old order. Linear in the size of the result."""
    chosen = wanted or (lambda call: True)
    inlining = _Inlining(chosen)
    if not any(node.subgraph is not None and chosen(node) for inner in graphs_in(graph) for node in inner.nodes):
        return graph
    inlining.check_size(graph)
    inlining.reserve(graph)
    with collector_paused():
        return inlining.graph(graph)


class _Inlining:
    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.ops: set[str] = set()
        """The names of op nodes, in all graphs."""
        self._counts: dict[str, int] = {}
        self._sizes: dict[int, tuple[int, Graph]] = {}
        self._done: dict[int, tuple[Graph, Graph]] = {}
        self._flat: dict[int, tuple[Graph, Graph]] = {}

    def check_size(self, graph: Graph) -> int:
        """Number of nodes that the inlined graph has, including its bodies."""
        known = self._sizes.get(id(graph))
        if known is not None:
            return known[0]
        size = len(graph.nodes) + sum(self.check_size(body) for node in graph.nodes for _, body in node.bodies)
        if size > LARGEST:
            raise GraphError(
                f"with all calls inlined there would be more than {LARGEST} nodes",
                where=f"graph {graph.name!r}",
                remedy="Keep the calls",
            )
        self._sizes[id(graph)] = size, graph
        return size

    def reserve(self, graph: Graph) -> None:
        """Reserves the names of ops outside the calls to be inlined."""
        for node in graph.nodes:
            if node.is_op and not self._goes(node):
                self.ops.add(node.name)
                for _, body in node.bodies:
                    self.reserve(body)

    def _goes(self, node: Node) -> bool:
        return node.subgraph is not None and self.wanted(node)

    def graph(self, graph: Graph) -> Graph:
        """The inlined graph; the same object if there was nothing to inline."""
        if id(graph) not in self._done:
            self._done[id(graph)] = self._graph(graph), graph
        return self._done[id(graph)][0]

    def flat(self, body: Graph) -> Graph:
        """The body of a call, itself inlined.

        Its ops get unique names only when they are spliced into the graph."""
        if id(body) not in self._flat:
            inner = _Inlining(self.wanted)
            inner.reserve(body)
            self._flat[id(body)] = inner.graph(body), body
        return self._flat[id(body)][0]

    def _graph(self, graph: Graph) -> Graph:
        rewriter = Rewriter(graph)
        splice = _Splice(self, rewriter, graph)
        for node in graph.nodes:
            if self._goes(node):
                splice.call(node)
            else:
                rewriter.keep(node, map_bodies(splice.rebuilt(node), self.graph))
        return rewriter.finish()

    def op_name(self, name: str, call: str) -> str:
        """A name for an op node that is inlined from a call."""
        return name_inlined(name, call, self.ops, self._counts)

    def renamed_body(self, body: Graph, call: str) -> Graph:
        """A body of an If, Loop or Scan inlined from a call, with new names for its op nodes."""
        rewriter = Rewriter(body)
        for node in body.nodes:
            renamed = rewriter.rebuilt(node)
            if node.is_op:
                renamed = map_bodies(renamed, lambda inner: self.renamed_body(inner, call))
                name = self.op_name(node.name, call)
                renamed = renamed if name == node.name else renamed.evolve(name=name)
            rewriter.keep(node, renamed)
        return rewriter.finish()


class _Splice:
    """Splices bodies into one graph."""

    def __init__(self, inlining: _Inlining, rewriter: Rewriter, graph: Graph) -> None:
        self.inlining = inlining
        self.rewriter = rewriter
        calls = {node for node in graph.nodes if inlining._goes(node)}
        self.values = {name for node in graph.nodes if node not in calls for name in node.output_names}
        self.names = {node.name for node in graph.nodes if not node.is_op}
        self._counts: dict[str, int] = {}
        self._expanded: dict[Node, tuple[Node, ...]] = {}
        self.constants = {(node.name, id(node.value)): node for node in graph.nodes if node.is_constant}

    def rebuilt(self, node: Node) -> Node:
        """The node reading the new values; a node that came after a call comes after all ops of that call."""
        rebuilt = self.rewriter.rebuilt(node)
        if not any(earlier in self._expanded for earlier in node.after):
            return rebuilt
        return rebuilt.evolve(after=tuple(n for earlier in rebuilt.after for n in self._expanded.get(earlier, (earlier,))))

    def call(self, call: Node) -> None:
        """Inserts the nodes of the body and connects them in place of the call."""
        assert call.subgraph is not None
        body = self.inlining.flat(call.subgraph)
        if len(body.inputs) != len(call.inputs):
            raise GraphError(
                f"the call has {len(call.inputs)} inputs and its body {len(body.inputs)}", where=f"call {call.name!r}"
            )
        read = [None if entry is None else self.rewriter.value(entry) for entry in call.inputs]
        values: dict[NodeEntry, NodeEntry | None] = {v[0]: entry for v, entry in zip(body.inputs, read, strict=True)}
        before = self.rebuilt(call).after
        nodes: dict[Node, Node] = {}
        renamed: dict[str, str] = {}
        for node in body.nodes:
            if not node.is_variable:
                inlined = nodes[node] = self._shared(node) or self._node(node, call, values, nodes, renamed, before)
                renamed[node.name] = inlined.name
                if inlined.is_constant:
                    self.constants.setdefault((inlined.name, id(inlined.value)), inlined)
                values.update(zip(node.outputs, inlined.outputs, strict=True))
        self._expanded[call] = tuple(node for node in nodes.values() if node.is_op) or before
        for old, inner in zip(call.outputs, body.outputs, strict=True):
            new = values[inner]
            if new is None:
                raise GraphError(f"the output {old.name!r} is an input that is absent", where=f"call {call.name!r}")
            self.rewriter.replace(old, new)

    def _shared(self, node: Node) -> Node | None:
        """The graph's constant of this name and array, if any: a partition copies one constant into several bodies."""
        return self.constants.get((node.name, id(node.value))) if node.is_constant else None

    def _node(
        self, node: Node, call: Node, values: dict[NodeEntry, NodeEntry | None], nodes: dict[Node, Node],
        renamed: dict[str, str], before: tuple[Node, ...],
    ) -> Node:
        captures = [values[entry] for entry in node.captures]
        if any(entry is None for entry in captures):
            raise GraphError("a body captures an input that is absent", where=f"node {node.name!r} in call {call.name!r}")
        if node.is_op:
            free = node.name not in self.names
            node_name = self.inlining.op_name(node.name if free else f"{call.name}_{node.name}", call.name)
            node = map_bodies(node, lambda body: self.inlining.renamed_body(body, call.name))
        else:
            free = node.name not in self.inlining.ops
            node_name = name_inlined(node.name if free else f"{call.name}_{node.name}", call.name, self.names, self._counts)
        outputs = tuple([n and name_inlined(n, call.name, self.values, self._counts) for n in node.output_names])
        after = (*(nodes[earlier] for earlier in node.after), *before) if node.is_op else ()
        noted = node.is_op and (AFTER in node.metadata or AFTER in call.metadata)
        return node.evolve(
            name=node_name,
            inputs=tuple([None if entry is None else values[entry] for entry in node.inputs]),
            captures=tuple(entry for entry in captures if entry is not None),
            output_names=outputs,
            after=after,
            metadata=note_out_of_call(node, call, renamed) if noted else node.metadata,
        )


def name_inlined(name: str, prefix: str, taken: set[str], counts: dict[str, int]) -> str:
    """The name, prefixed if it is taken, and numbered if that is taken too; it is then marked as taken."""
    return unique(f"{prefix}_{name}" if name in taken else name, taken, counts)
