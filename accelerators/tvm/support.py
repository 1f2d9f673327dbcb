"""Which ops TVM compiles, and compiles right."""

from __future__ import annotations

from accelerators.tvm.machine import Machine
from graph.graph import Graph
from graph.node import Node
from graph.types import TensorType


def supported(node: Node, graph: Graph, machine: Machine) -> bool | str:
    """True, or why not."""
    for entry in (*node.reads, *node.outputs):
        if entry.name and not isinstance(entry.type, TensorType):
            return "not a tensor"
    return True
