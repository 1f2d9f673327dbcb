"""Opsets that an engine does not know yet: an op that has not changed since means the same under an older number."""

from __future__ import annotations

from collections.abc import Mapping

from graph.graph import Graph
from graph.node import Node
from graph.ops.schemas import spec_of
from passes.bodies import everywhere


def too_new(node: Node, opsets: Mapping[str, int], newest: Mapping[str, int], engine: str) -> str | None:
    """Why the engine, which knows each domain up to `newest`, does not know this op; None if it does.

    Bodies have to be asked about by themselves."""
    limit = newest.get(node.domain)
    version = opsets.get(node.domain, 1)
    if limit is None or version <= limit or node.op is None:
        return None
    spec = spec_of(node.op, node.domain, version)
    if spec is not None and spec.since <= limit:
        return None
    return f"{engine} knows {node.domain or 'ONNX'} up to opset {limit}; {node.op} at opset {version} is newer"


def lowered(graph: Graph, newest: Mapping[str, int]) -> Graph:
    """The graph, whose ops are all known to the engine, under opset numbers that it knows too."""
    opsets = {domain: min(version, newest.get(domain, version)) for domain, version in graph.opsets.items()}
    if opsets == dict(graph.opsets):
        return graph
    return everywhere(graph, lambda inner: inner.evolve(opsets=opsets))
