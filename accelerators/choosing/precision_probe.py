"""A model in which each op's result can be replaced from outside, and its ops alone in a lower precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.precision.calibration import Range
from partita.accelerators.precision.lowered_ops import lowered, moved_from
from partita.graph.build import op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter
from partita.graph.types import Array, TensorType
from partita.passes.constants import Namer
from partita.passes.infer import infer


class Probe:
    """The graph with a value added to the result of each op, which is zero or the op's error; its further outputs are the values
    that the ops read and compute."""

    def __init__(self, graph: Graph, ops: Sequence[Node]) -> None:
        rewriter, namer = Rewriter(graph), Namer(graph)
        self.shifts: dict[str, str] = {}
        """The inputs that are added to the results of ops, by op."""
        self.still: dict[str, Array] = {}
        """Zeros for all of them."""
        results: dict[NodeEntry, NodeEntry] = {}
        extra: list[Node] = []
        measured = set(ops)
        for node in graph.nodes:
            kept = rewriter.keep(node)
            if node in measured:
                shift = variable(namer(f"{node.name}_shift"), type=node.output_types[0])
                extra.append(shift)
                self.shifts[node.name] = shift.name
                self.still[shift.name] = np.zeros(_sizes(node[0]), np.float32)
                name = namer(f"{node.name}_moved")
                moved = op("Add", kept[0], shift, name=name, output_names=(name,))
                results[node[0]] = kept[0]
                rewriter.replace(node[0], moved.evolve(output_types=node.output_types, affinity=node.affinity)[0])
        read = [entry for node in ops for entry in moved_from(read_by(node))]
        self.reads = list(dict.fromkeys(entry.name for entry in read))
        """The values that ops read, and those that they are moves of."""
        beside = [entry for node in ops for entry in read_beside(node).values()]
        seen = {entry.name: rewriter.value(entry) for entry in (*read, *beside)}
        seen |= {entry.name: kept for entry, kept in results.items()}
        self.seen = list(seen)
        """The values that are further outputs."""
        names = [*graph.output_names, *(namer(f"{name}_seen") for name in self.seen)]
        outputs = [*map(rewriter.value, graph.outputs), *seen.values()]
        self.graph = rewriter.finish(outputs=outputs, output_names=names, inputs=[*graph.inputs, *extra], nodes=())


def isolated(graph: Graph, ops: Sequence[Node], precision: str, ranges: Mapping[str, Range]) -> Graph:
    """Ops in a lower precision, each with its own float32 inputs, named by `given_to`."""
    inputs: list[Node] = []
    nodes: list[Node] = []
    own: dict[str, Range] = {}
    for i, node in enumerate(ops):
        given = {slot: variable(name, type=entry.type) for slot, (name, entry) in given_to(node, i).items()}
        inputs += given.values()
        read = tuple(given[slot][0] if slot in given else entry for slot, entry in enumerate(node.inputs))
        nodes.append(node.evolve(inputs=read, after=()))
        own[given[0].name] = ranges[moved_from(read_by(node))[-1].name]
    alone = Graph([node[0] for node in nodes], inputs, f"{graph.name}_alone", graph.opsets)
    return infer(lowered(alone, {node.name: precision for node in nodes}, own), strict=False)


def given_to(node: Node, number: int) -> dict[int, tuple[str, NodeEntry]]:
    """By slot: the input of the isolated op of that number, and the value that it replaces."""
    values = {0: read_by(node), **read_beside(node)}
    return {slot: (f"given{number}_{slot}", entry) for slot, entry in values.items()}


def read_beside(node: Node) -> dict[int, NodeEntry]:
    """The computed inputs of a product other than its first, by slot: a bias."""
    given = enumerate(node.inputs)
    return {slot: entry for slot, entry in given if slot > 0 and entry is not None and entry.node.value is None}


def read_by(node: Node) -> NodeEntry:
    """The value that a product multiplies by its weights."""
    (value, *_) = node.reads
    return value


def _sizes(entry: NodeEntry) -> tuple[int, ...]:
    known = entry.type
    if not isinstance(known, TensorType) or not known.is_static or known.shape is None:
        raise AcceleratorError(
            f"the size of {entry.name!r} depends on values", where="choose_precision", remedy="Fix the sizes of the inputs"
        )
    return tuple(int(size or 0) for size in known.shape)
