"""InlineSubgraphs: replaces calls by the nodes of their bodies, the inverse of PartitionGraph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from partita.graph.control_dependencies import AFTER, names_after, without_note
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.partition.errors import PartitionError
from partita.passes import register_pass
from partita.passes.bodies import everywhere
from partita.passes.registry import REQUESTS


@register_pass("InlineSubgraphs", keeps=("shape", "dtype", *REQUESTS))
def inline_subgraphs(g: Graph, calls: str | Sequence[str] | Callable[[Node], bool] | None = None) -> Graph:
    """The graph with calls replaced by their bodies: all calls, the named ones, or those that a predicate
    accepts.

    Calls inside bodies are inlined too. Partitioning and then inlining gives the original graph. An op that a property
    made without a body is kept."""
    if calls is None or callable(calls):
        inlined = inline_calls(g, calls)
    else:
        names = [calls] if isinstance(calls, str) else list(calls)
        missing = [name for name in names if name not in g or not g[name].is_call]
        if missing:
            raise PartitionError(f"there is no call {missing[0]!r}", where=f"graph {g.name!r}")
        wanted = frozenset(names)
        inlined = inline_calls(g, lambda node: node.name in wanted)
    noted = any(AFTER in node.metadata for graph in graphs_in(inlined) for node in graph.nodes)
    return everywhere(inlined, _with_control) if noted else inlined


def _with_control(g: Graph) -> Graph:
    """The graph with the control dependencies that crossed a border, if all their nodes are in the graph again by
    name."""
    restored: dict[str, Node] = {}

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        names = names_after(rebuilt) if AFTER in rebuilt.metadata else None
        if names is not None and all(name in restored for name in names):
            rebuilt = rebuilt.evolve(after=tuple(restored[name] for name in names), metadata=without_note(rebuilt))
        restored[node.name] = rewriter.keep(node, rebuilt)

    return rewrite(g, visit)
