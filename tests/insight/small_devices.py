"""A device that runs everything as `reference` does, except for one op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import partita as pt
from partita.graph.inline import inline_calls
from partita.graph.interpret import evaluate_node
from partita.graph.node import NodeEntry

Kernel = Callable[[pt.Node, Sequence[Any]], Sequence[Any]]


class Interpreted(pt.CompiledSubgraph):
    """Walks over the nodes."""

    def __init__(self, graph: pt.Graph, op: str, kernel: Kernel) -> None:
        self.graph, self.op, self.kernel = inline_calls(graph), op, kernel

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        values: dict[NodeEntry, Any] = {node[0]: value for node, value in zip(self.graph.inputs, inputs, strict=True)}
        for node in self.graph.nodes:
            if not node.is_variable:
                read = [None if entry is None else values[entry] for entry in node.inputs]
                own = node.op == self.op
                results = self.kernel(node, read) if own else evaluate_node(node, read, self.graph.opsets)
                values.update(zip(node.outputs, results, strict=True))
        return [values[entry] for entry in self.graph.outputs]


@contextmanager
def device_of(kernel: Kernel | None, op: str, keys: Mapping[str, Any] | None = None) -> Iterator[str]:
    """A device that computes this op by `kernel`, or that fails to compile it where there is none."""

    class Small(pt.Accelerator):
        name = "small"
        config_keys = dict(keys or {})

        def supports(self, node: pt.Node, graph: pt.Graph) -> bool:
            return True

        def compile(self, graph: pt.Graph, config: Mapping[str, Any]) -> pt.CompiledSubgraph:
            if kernel is None and any(node.op == op for node in graph.nodes):
                raise ValueError(f"no kernel for {op}")
            return Interpreted(graph, op, kernel)  # type: ignore[arg-type]

    pt.register_accelerator(Small)
    try:
        yield Small.name
    finally:
        pt.unregister_accelerator(Small.name)
