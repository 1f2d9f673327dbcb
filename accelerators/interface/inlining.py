"""Inlining of calls that tracks which op came out of which call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from partita.graph.errors import ReadError
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, map_bodies, rewrite, with_changes
from partita.passes import apply_pass

_OWNER = "partita.owner"
"""The metadata key that holds, during inlining, the name of the call that an op came from."""


def without_calls(graph: Graph, rounds: Sequence[Sequence[str]]) -> Graph:
    """The graph with these calls inlined, as far as it has them, one round after the other."""
    from partita.partition import inline_subgraphs  # start-up

    for names in rounds:
        graph = inline_subgraphs(graph, list(names))
    return graph


def inlined_with_owners(graph: Graph, names: Collection[str], nested: bool) -> tuple[Graph, dict[str, str]]:
    """The graph without these calls (and, if `nested`, without those in their bodies), and for each inlined op, by name, the call
    that held it. Linear in the result."""
    own = {node.name for node in graph.nodes if node.is_op and node.name not in names}

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if node.name in names and rebuilt.subgraph is not None:
            body = _marked(rebuilt.subgraph, node.name, nested)
            rebuilt = rebuilt.evolve(subgraph=body, metadata={**rebuilt.metadata, _OWNER: node.name})
        rewriter.keep(node, rebuilt)

    def goes(node: Node) -> bool:
        return _OWNER in node.metadata and node.name not in own and (nested or node.name in names)

    flat = inline_calls(rewrite(graph, visit), goes)
    owners = {node.name: node.metadata[_OWNER] for node in flat.nodes if node.is_op and node.name not in own}
    return with_changes(flat, _without_mark), owners


def _marked(body: Graph, owner: str, nested: bool) -> Graph:
    """The body, each of its ops marked with the call's name; with `nested` also ops in the bodies of inner calls."""

    def mark(node: Node) -> dict[str, Any]:
        if not node.is_op:
            return {}
        subgraph = node.subgraph
        if subgraph is not None and nested:
            subgraph = _marked(subgraph, owner, nested)
        return {"subgraph": subgraph, "metadata": {**node.metadata, _OWNER: owner}}

    return with_changes(body, mark)


def _without_mark(node: Node) -> dict[str, Any]:
    if _OWNER not in node.metadata:
        return {}
    return {"metadata": {key: text for key, text in node.metadata.items() if key != _OWNER}}


COMPILED = "partita.package"
"""Domain of the op that stands for a subgraph in a file exported without its bodies."""


def unplaced(graph: Graph, remedy: str = "Give the model itself") -> Graph:
    """The graph before partitioning: calls are inlined and affinities removed."""
    inlined = apply_pass(graph, "InlineSubgraphs")
    if any(node.domain == COMPILED for node in inlined.nodes):
        raise ReadError("it holds machine code alone, and not what that computes", remedy=remedy)

    def visit(node: Node, rewriter: Rewriter) -> None:
        changed = map_bodies(rewriter.rebuilt(node), unplaced)
        if changed.affinity is not None:
            changed = changed.evolve()
            changed.affinity = None
        rewriter.keep(node, changed)

    return rewrite(inlined, visit)
