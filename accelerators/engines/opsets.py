"""Models of opsets newer than an engine: an op that has only gained element types is passed on under an older opset."""

from __future__ import annotations

from collections.abc import Mapping

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.schemas import OpSpec, ParamSpec, spec_of
from partita.passes.bodies import everywhere


def too_new(node: Node, opsets: Mapping[str, int], newest: Mapping[str, int], engine: str) -> str | None:
    """The reason why the engine, which supports each domain up to `newest`, does not support this op; None if it does.

    Does not look into bodies."""
    limit = newest.get(node.domain)
    version = opsets.get(node.domain, 1)
    if limit is None or version <= limit or node.op is None:
        return None
    spec = spec_of(node.op, node.domain, version)
    if spec is not None and (spec.since <= limit or _only_more_types(spec, spec_of(node.op, node.domain, limit))):
        return None
    return f"{engine} knows {node.domain or 'ONNX'} up to opset {limit}; {node.op} at opset {version} is newer"


def _only_more_types(new: OpSpec, old: OpSpec | None) -> bool:
    """True if the newer version of the op changed only its element types."""
    return old is not None and not old.deprecated and _signature(new) == _signature(old)


def _signature(spec: OpSpec) -> object:
    def options(params: tuple[ParamSpec, ...]) -> list[object]:
        return [(param.name.lower(), param.option, param.homogeneous) for param in params]

    return options(spec.inputs), options(spec.outputs), dict(spec.attributes)


def lowered(graph: Graph, newest: Mapping[str, int]) -> Graph:
    """The graph with opset numbers that the engine supports, given that it supports all ops."""
    opsets = {domain: min(version, newest.get(domain, version)) for domain, version in graph.opsets.items()}
    if opsets == dict(graph.opsets):
        return graph
    return everywhere(graph, lambda inner: inner.evolve(opsets=opsets))
