"""Partitioning of the bodies in a graph instead of the graph: of calls, of If, Loop and Scan, at any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from partita.graph.build import is_made_call
from partita.graph.errors import PartitaError
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.partition.errors import PartitionError, not_a, raised
from partita.partition.plans import Plan, WrittenReasons
from partita.partition.report import PartitionReport
from partita.passes.registry import REPORT

Which = Callable[[Node], bool]
"""Returns whether the bodies of a node are to be partitioned."""


def partition_inside(g: Graph, inside: bool | Which, partition: Callable[[Graph, Graph], Graph]) -> Graph:
    """The graph with the bodies of these nodes partitioned, innermost first. Linear, besides the partitioning.

    True means the bodies of calls that a partition made, and those of If, Loop and Scan. A shared body, as of
    a model's functions, is partitioned once, for all its nodes if one is selected: names stay unique. Each body's report is
    in its own attributes; that of the whole graph gets notes on them."""
    order = list(_innermost_first(g))
    wanted, passed_by = _wanted(order, inside if callable(inside) else _by_default)
    done: dict[Graph, Graph] = {}
    for graph in order:
        done[graph] = _filled(graph, done)
        if graph in wanted:
            done[graph] = partition(graph, done[graph])
    reports = [done[body].attrs[REPORT] for body in order if body in wanted]
    return _with_notes(done[g], reports, passed_by)


def _by_default(node: Node) -> bool:
    return is_made_call(node) or node.subgraph is None


def _wanted(graphs: Sequence[Graph], which: Which) -> tuple[set[Graph], list[str]]:
    """-> (the bodies of the nodes that `which` selects, the names of the others with bodies)."""
    wanted: set[Graph] = set()
    passed_by = []
    for graph in graphs:
        for node in graph.nodes:
            bodies = [body for _, body in node.bodies]
            if bodies and _asked(which, node):
                wanted.update(bodies)
            elif bodies:
                passed_by.append(node.name)
    return wanted, passed_by


def _asked(which: Which, node: Node) -> bool:
    """The predicate's answer, checked."""
    where = f"option inside, node {node.name!r} ({node.op})"
    try:
        answer = which(node)
    except PartitaError:
        raise
    except Exception as error:
        raise PartitionError(raised(error), where=where) from error
    if not isinstance(answer, (bool, np.bool_)):
        remedy = "Answer True or False; bool(...) makes one of any value"
        raise PartitionError(not_a("a bool", answer), where=where, remedy=remedy)
    return bool(answer)


def _filled(graph: Graph, done: Mapping[Graph, Graph]) -> Graph:
    """The graph with its bodies replaced by finished ones."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        rewriter.keep(node, map_bodies(rebuilt, done.__getitem__) if node.bodies else rebuilt)

    return rewrite(graph, visit)


def _innermost_first(g: Graph) -> Iterator[Graph]:
    """The graph and all graphs inside it, each once and after the graphs that it holds. Not recursive."""
    seen: set[Graph] = set()
    waiting = [(g, False)]
    while waiting:
        graph, complete = waiting.pop()
        if complete:
            yield graph
        elif graph not in seen:
            seen.add(graph)
            waiting.append((graph, True))
            waiting += [(body, False) for node in reversed(graph.nodes) for _, body in reversed(node.bodies)]


def _with_notes(filled: Graph, reports: Sequence[PartitionReport], passed_by: Sequence[str]) -> Graph:
    """The graph with a report on its bodies, after the notes of its previous report."""
    known = filled.attrs.get(REPORT)
    if not isinstance(known, PartitionReport):
        known = PartitionReport(Plan(filled.name, (), (), WrittenReasons((), ()), filled), ())
    plan = attrs.evolve(known.plan, notes=(*known.notes, *_notes(reports, passed_by)))
    return filled.evolve(attrs={**filled.attrs, REPORT: attrs.evolve(known, plan=plan)})


def _notes(reports: Sequence[PartitionReport], passed_by: Sequence[str]) -> Iterator[str]:
    if reports:
        groups = sum(len(report.groups) for report in reports)
        yield f"Inside, {counted(len(reports), 'body', 'bodies')} got {counted(groups, 'subgraph')}; each body has its own report"
    elif passed_by:
        names = ", ".join(map(repr, passed_by[:5])) + (", ..." if len(passed_by) > 5 else "")
        nodes = counted(len(passed_by), "node")
        yield f"Nothing was partitioned: inside= said no to {nodes} with a body ({names}), and there is no other"
    else:
        yield "Nothing was partitioned: inside= looks for calls, If, Loop and Scan, and the graph has none"
    yield from dict.fromkeys(note for report in reports for note in report.notes)
