"""The trusted run of a partitioned graph, subgraph by subgraph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from partita.graph.graph import Graph
from partita.graph.interpret import last_reads
from partita.graph.node import Node, NodeEntry
from partita.insight.trusted import Trusted


@attrs.frozen(slots=True, eq=False)
class Border:
    """Inputs and outputs of one subgraph in the trusted run."""

    call: Node
    """Call of the subgraph."""
    given: list[Any]
    """Values of the subgraph's inputs."""
    expected: list[Any]
    """Values of its outputs."""


class TrustedWalk:
    """Runs subgraph after subgraph on the trusted devices. Values that no later subgraph reads are dropped."""

    def __init__(self, graph: Graph, bodies: Sequence[Graph], arrays: Sequence[Any], trusted: Trusted) -> None:
        self.graph, self.bodies, self.trusted = graph, bodies, trusted
        self._values: dict[NodeEntry, Any] = {node[0]: node.value for node in graph.nodes if node.is_constant}
        self._values |= {node[0]: array for node, array in zip(graph.inputs, arrays, strict=True)}

    def __iter__(self) -> Iterator[Border]:
        last = last_reads(self.graph)
        calls = [node for node in self.graph.nodes if node.is_op]
        for call, body in zip(calls, self.bodies, strict=True):
            given = [None if entry is None else self._values[entry] for entry in call.inputs]
            expected = self.trusted.outputs(body, given)
            yield Border(call, given, expected)
            self._values.update(zip(call.outputs, expected, strict=True))
            for entry in last.get(call, ()):
                self._values.pop(entry, None)

    @property
    def outputs(self) -> list[Any]:
        """Outputs of the graph, once all subgraphs have run."""
        return [self._values[entry] for entry in self.graph.outputs]
