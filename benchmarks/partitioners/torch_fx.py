"""torch.fx: CapabilityBasedPartitioner, proposing and fusing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from benchmarks.partitioners import Color, Finding, Preds, clocked, read_by_nobody, report


class ByColor(OperatorSupportBase):
    """Takes the nodes that the device takes."""

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        """Whether the device takes the node, as its color says."""
        return node.meta.get("color") is not None


def module(preds: Preds, color: Color) -> fx.GraphModule:
    """The shape as a traced module."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    values: list[fx.Node] = []
    for v, producers in enumerate(preds):
        read = tuple(values[u] for u in producers) or (x,)
        node = graph.call_function(torch.add if len(read) == 2 else torch.sigmoid, read)
        node.meta["color"] = color[v]
        values.append(node)
    graph.output(tuple(values[v] for v in read_by_nobody(preds)))
    return fx.GraphModule(torch.nn.Module(), graph)


def measure(preds: Preds, color: Color) -> Finding:
    """Partition once and measure it."""
    given = module(preds, color)

    def run() -> tuple[int, fx.GraphModule]:
        partitioner = CapabilityBasedPartitioner(given, ByColor(), allows_single_node_partition=True)
        partitions = partitioner.propose_partitions()
        return len(partitions), partitioner.fuse_partitions(partitions)

    seconds, (groups, fused) = clocked(run)
    return seconds, groups, "" if _in_order(fused.graph) else "cyclic"


def _in_order(graph: fx.Graph) -> bool:
    """Is each node made before it is read?"""
    ready: set[Any] = set()
    for node in graph.nodes:
        if any(read not in ready for read in node.all_input_nodes):
            return False
        ready.add(node)
    return True


if __name__ == "__main__":
    report(measure)
