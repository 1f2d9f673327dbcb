"""A vendor's device, in a module of its own, whose Softmax is wrong by one in a hundred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import partita as pt
from partita.graph.interpret import evaluate_node


class Compiled(pt.CompiledSubgraph):
    """Walks over the nodes."""

    def __init__(self, graph: pt.Graph) -> None:
        self.graph = graph

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        values: dict[Any, Any] = {node[0]: value for node, value in zip(self.graph.inputs, inputs, strict=True)}
        for node in self.graph.nodes:
            if not node.is_variable:
                read = [None if entry is None else values[entry] for entry in node.inputs]
                results = evaluate_node(node, read, self.graph.opsets)
                factor = np.float32(1.01 if node.op == "Softmax" else 1)
                values.update(zip(node.outputs, [value * factor for value in results], strict=True))
        return [values[entry] for entry in self.graph.outputs]


class Vendor(pt.Accelerator):
    """Runs everything."""

    name = "vendor"

    def supports(self, node: pt.Node, graph: pt.Graph) -> bool:
        return True

    def compile(self, graph: pt.Graph, config: Mapping[str, Any]) -> pt.CompiledSubgraph:
        return Compiled(graph)
