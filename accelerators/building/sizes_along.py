"""Copies shape arithmetic into the subgraphs that need it: one that reads a size computed in another computes it itself.

A user's property, or an op of another device, may separate a Reshape from the Concat of its sizes. A device that needs static
sizes to compile would have to refuse it there, though the sizes follow from those of the subgraph's inputs."""

from __future__ import annotations

from collections.abc import Callable

from partita.graph.build import is_made_call, variable
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.ops import is_random
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.passes.infer.shape_operands import deciding_inputs

MOST = 512
"""Maximum number of nodes examined for one value; larger arithmetic is not copied."""


_Place = tuple[Node | None, NodeEntry]
"""A value, and the call whose body computes it; None for the graph itself."""


def sizes_along(graph: Graph, is_open: Callable[[Node], bool]) -> Graph:
    """The graph, in which open calls hold copies of the shape arithmetic that determines their sizes.

    The body of an open call may be changed: it may also get another output, to be measured. Linear except for the copies."""
    rooms = {node: _Room(node) for node in graph.nodes if is_made_call(node)}
    search = _ProducerSearch(rooms, is_open)
    for call, room in rooms.items():
        if is_open(call):
            room.recipes = search.recipes(call)
    if not any(room.recipes for room in rooms.values()):
        return graph
    names = _FreeNames(graph)
    for room in rooms.values():
        if room.recipes:
            _Copying(room, search, names).copy()

    def visit(node: Node, rewriter: Rewriter) -> None:
        room = rooms.get(node)
        rewriter.keep(node, None if room is None else rewriter.rebuilt(room.rebuilt()))

    return rewrite(graph, visit)


class _Room:
    """A call and the changes to it."""

    def __init__(self, call: Node) -> None:
        assert call.subgraph is not None
        self.call = call
        self.body = call.subgraph
        self.outer = dict(zip(self.body.inputs, call.inputs, strict=True))
        """The value of the graph that each input reads."""
        self.recipes: dict[Node, list[_Place]] = {}
        """For each removed input, the nodes to copy."""
        self.values: dict[Node, NodeEntry] = {}
        """The replacement of each removed input."""
        self.new_inputs: dict[NodeEntry, Node] = {}
        """The new inputs, by the value of the graph that they read."""
        self.exits: dict[NodeEntry, int] = {}
        """Values of the body that become outputs, with their numbers."""

    def exit(self, value: NodeEntry) -> NodeEntry:
        """The call's output for this value of its body, which may be a new output."""
        if value in self.body.outputs:
            return NodeEntry(self.call, self.body.outputs.index(value))
        return NodeEntry(self.call, self.exits.setdefault(value, len(self.body.outputs) + len(self.exits)))

    def rebuilt(self) -> Node:
        """The changed call, which reads the graph's old values."""
        if not (self.recipes or self.exits):
            return self.call
        rewriter = Rewriter(self.body)
        for node, value in self.values.items():
            rewriter.replace(node[0], value)
        for node in self.body.nodes:
            if node not in self.values:
                rewriter.keep(node)
        kept = [node for node in self.body.inputs if node not in self.values]
        inputs = [*(self.outer[node] for node in kept), *self.new_inputs]
        outputs = [rewriter.value(entry) for entry in (*self.body.outputs, *self.exits)]
        exit_names = tuple([entry.name for entry in self.exits])
        output_names = (*self.body.output_names, *exit_names)
        body = rewriter.finish(inputs=[*kept, *self.new_inputs.values()], outputs=outputs, output_names=output_names, nodes=())
        return self.call.evolve(
            inputs=tuple(inputs),
            subgraph=body,
            output_names=(*self.call.output_names, *exit_names),
            output_types=(*self.call.output_types, *(entry.type for entry in self.exits)),
        )


class _ProducerSearch:
    """Finds the producers of values across the borders of calls."""

    def __init__(self, rooms: dict[Node, _Room], is_open: Callable[[Node], bool]) -> None:
        self.rooms = rooms
        self.is_open = is_open

    def recipes(self, call: Node) -> dict[Node, list[_Place]]:
        """For each input of the call's body that determines sizes and follows from sizes, the steps to it in order."""
        recipes = {}
        for node in deciding_inputs(self.rooms[call].body):
            steps = self._steps(self.source((call, node[0])))
            if steps is not None:
                recipes[node] = steps
        return recipes

    def source(self, place: _Place) -> _Place:
        """The origin of the value: an op, a constant or an input of the graph."""
        call, entry = place
        while True:
            room = self.rooms.get(entry.node) if call is None else None
            if room is not None:
                call, entry = entry.node, room.body.outputs[entry.index]
            elif call is not None and entry.node.is_variable:
                outer = self.rooms[call].outer[entry.node]
                assert outer is not None
                call, entry = None, outer
            else:
                return call, entry

    def _steps(self, wanted: _Place) -> list[_Place] | None:
        """The ops and constants that the value follows from, in topological order; None if it depends on more than sizes."""
        steps: list[_Place] = []
        seen: set[tuple[Node | None, Node]] = set()
        waiting = [(wanted, False)]
        while waiting:
            (call, entry), is_read = waiting.pop()
            node = entry.node
            if is_read:
                steps.append((call, entry))
            elif (call, node) not in seen:
                seen.add((call, node))
                measures = node.op in ops("size") and not node.domain
                if len(seen) > MOST or not (self._can_measure(call, node) if measures else _can_copy(node)):
                    return None
                waiting.append(((call, entry), True))
                waiting.extend((self.source((call, read)), False) for read in node.reads if not measures)
        return steps

    def _can_measure(self, call: Node | None, node: Node) -> bool:
        """True if another call may read the value that is measured here."""
        inside, value = self.source((call, node.reads[0]))
        is_outside = inside is None or value in self.rooms[inside].body.outputs or self.is_open(inside)
        return is_outside and isinstance(value.type, TensorType)


class _Copying:
    """Copies the shape arithmetic of one call's sizes into its body."""

    def __init__(self, room: _Room, search: _ProducerSearch, names: _FreeNames) -> None:
        self.room = room
        self.search = search
        self.names = names
        self.nodes: dict[tuple[Node | None, Node], Node] = {}
        self.inputs = {outer: node for node, outer in room.outer.items() if outer is not None and node not in room.recipes}

    def copy(self) -> None:
        """Makes the copies, and records the input that each value replaces."""
        for node, steps in self.room.recipes.items():
            for call, entry in steps:
                if (call, entry.node) not in self.nodes:
                    self.nodes[call, entry.node] = self._copied(call, entry.node)
            self.room.values[node] = self._value((self.room.call, node[0]))

    def _copied(self, call: Node | None, node: Node) -> Node:
        measures = node.op in ops("size") and not node.domain
        value = self._measured if measures else self._value
        return node.evolve(
            name=self.names.of_node(node.name),
            inputs=tuple([None if entry is None else value((call, entry)) for entry in node.inputs]),
            output_names=tuple([name and self.names.of_value(name) for name in node.output_names]),
            affinity=self.room.call.affinity if node.is_op else node.affinity,
        )

    def _value(self, place: _Place) -> NodeEntry:
        call, entry = self.search.source(place)
        return self.nodes[call, entry.node][entry.index]

    def _measured(self, place: _Place) -> NodeEntry:
        """An input of the body for this value."""
        call, entry = self.search.source(place)
        if entry.node.value is not None:
            return entry.node.evolve(name=self.names.of_node(entry.node.name), output_names=(self.names.of_value(entry.name),))[0]
        outer = entry if call is None else self.search.rooms[call].exit(entry)
        if outer not in self.inputs:
            assert isinstance(entry.type, TensorType)
            name = self.names.of_node(self.names.of_value(entry.name))
            self.inputs[outer] = self.room.new_inputs[outer] = variable(name, entry.type.dtype, entry.type.shape)
        return self.inputs[outer][0]


class _FreeNames:
    """Generates names that are unused in the graph and its bodies."""

    def __init__(self, graph: Graph) -> None:
        nodes = [node for inner in graphs_in(graph) for node in inner.nodes]
        self._nodes = {node.name for node in nodes}
        self._values = {name for node in nodes for name in node.output_names}

    def of_node(self, name: str) -> str:
        """A free name for a node."""
        return unique(name, self._nodes)

    def of_value(self, name: str) -> str:
        """A free name for a value."""
        return unique(name, self._values)


def _can_copy(node: Node) -> bool:
    """True for a constant, or for a deterministic op that takes little time."""
    if node.value is not None:
        return True
    return node.is_op and not (node.bodies or node.domain or node.after or is_random(node) or node.op in ops("endless"))
