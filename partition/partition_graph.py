"""PartitionGraph: replaces subgraphs by calls, as chosen by properties or affinities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.graph.build import is_made_call
from partita.graph.errors import PartitaError, did_you_mean
from partita.graph.formatting import counted
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.partition.backend import make_properties
from partita.partition.errors import PartitionError, not_a, raised
from partita.partition.names import names_in
from partita.partition.options import PartitionOptions, with_options
from partita.partition.planner import Planner
from partita.partition.plans import Plan, finish, plain_property, plan_of
from partita.partition.property import AffinityProperty, SubgraphProperty
from partita.partition.reasons import WrittenReasons
from partita.partition.report import PartitionReport
from partita.partition.with_types import Typed, TypedBodies, with_types
from partita.passes import apply_pass, register_pass
from partita.passes.registry import REPORT, REQUESTS

PROPERTY = "subgraph_property"
"""The graph attribute for one or several properties."""

Properties = SubgraphProperty | Sequence[SubgraphProperty]
"""One property, or several that are tried in order."""


@register_pass("PartitionGraph", keeps=("shape", "dtype", *(r for r in REQUESTS if r != PROPERTY)))
@with_options
def partition_graph(
    g: Graph,
    *,
    subgraph_property: Properties | None = None,
    backend: str | None = None,
    inside: bool | Callable[[Node], bool] = False,
    **options: Any,
) -> Graph:
    """The graph with each subgraph replaced by one call.

    The groups are chosen by the property given (or several, in order), else by the backend's, else
    `g.attrs["subgraph_property"]`, which is consumed, else the affinities of the nodes. `inside` partitions bodies
    instead, at any depth: those of the calls that a partition made, and of If, Loop and Scan (or of the nodes for which
    it returns True)."""
    chosen = PartitionOptions.of(options)
    if inside and chosen.groups is not None:
        raise PartitionError("groups are of one graph, not of the bodies in it", where="option groups", remedy="Leave inside out")
    if not (isinstance(inside, bool) or callable(inside)):
        remedy = "Give True, or a function that returns whether a node's bodies are partitioned"
        raise PartitionError(f"inside={inside!r:.80} says nothing about nodes", where="option inside", remedy=remedy)
    with collector_paused():
        if not inside:
            properties = choose_properties(g, subgraph_property, backend, chosen.groups is not None)
            return _partition(with_types(g, chosen.infer_types, properties), properties, chosen, names_in(g))
        taken = names_in(g)
        typed = TypedBodies(with_types(g, chosen.infer_types))

        def partition(body: Graph, filled: Graph) -> Graph:
            return _partition(typed.of(body, filled), _choose_inside(g, subgraph_property, backend), chosen, taken)

        done = partition_inside(g, inside, partition)
        return done.evolve(attrs={key: value for key, value in done.attrs.items() if key != PROPERTY})


def _partition(typed: Typed, properties: list[SubgraphProperty], options: PartitionOptions, taken: set[str]) -> Graph:
    _check_options(properties, options.extra)
    planner = Planner(typed, options, taken)
    with planner.witness:
        planned = planner.run(properties, make_calls=True)
        return finish(planned, properties, {key: value for key, value in typed.source.attrs.items() if key != PROPERTY})


def _choose_inside(g: Graph, given: Properties | None, backend: str | None) -> list[SubgraphProperty]:
    """The properties for a body: those of the graph; by affinity if an op in any body has one."""
    by_affinity = given is None and backend is None and g.attrs.get(PROPERTY) is None
    if by_affinity and any(node.affinity is not None for body in graphs_in(g) for node in body.nodes if node.is_op):
        return [AffinityProperty()]
    return choose_properties(g, given, backend)


@with_options
def plan(g: Graph, *, subgraph_property: Properties | None = None, backend: str | None = None, **options: Any) -> Plan:
    """The plan that PartitionGraph would follow with the same options; the graph is not rewritten.

    The hooks that choose are called, but not those that make calls: a subgraph that `review_subgraph` or
    `create_subgraph_node` would decline is still in the plan."""
    if not isinstance(g, Graph):
        cause = f"a plan is of a Graph, not of {type(g).__name__}"
        raise PartitionError(cause, where="plan", remedy="Load the model first: pt.load(...)")
    if "inside" in options:
        remedy = "Plan each body by itself: plan(g[name].subgraph, ...)"
        raise PartitionError("a plan is of one graph, not of the bodies in it", where="option inside", remedy=remedy)
    chosen = PartitionOptions.of(options)
    properties = choose_properties(g, subgraph_property, backend, chosen.groups is not None)
    _check_options(properties, chosen.extra)
    with collector_paused():
        planner = Planner(with_types(g, chosen.infer_types, properties), chosen)
        with planner.witness:
            return plan_of(planner.run(properties, make_calls=False), properties)


@with_options
def optimize_for(g: Graph, backend: str, **options: Any) -> Graph:
    """The graph partitioned for a backend."""
    return apply_pass(g, "PartitionGraph", backend=backend, **options)


def choose_properties(
    g: Graph, given: Properties | None, backend: str | None, grouped: bool = False
) -> list[SubgraphProperty]:
    """The properties that decide: from the option, the backend, the graph attribute, or affinities. If the groups
    are given (`grouped`), a single one makes their calls, by default a plain one."""
    listed = _stated_properties(g, given, backend)
    if grouped:
        if listed is None:
            return [plain_property("group")]
        if len(listed) > 1:
            cause = f"there are {len(listed)} properties, and groups are one property's"
            raise PartitionError(cause, where="option groups", remedy="Give one property, or none")
    if listed is not None:
        return listed
    ops = [node for node in g.nodes if node.is_op]
    if not ops or any(node.affinity is not None for node in ops):
        return [AffinityProperty()]
    raise PartitionError(
        "nothing says what goes together: there is no property, no backend, and no node has an affinity",
        where=f"graph {g.name!r}",
        remedy='Give subgraph_property=..., backend="...", set g.attrs["subgraph_property"], or set node.affinity',
    )


def _stated_properties(g: Graph, given: Properties | None, backend: str | None) -> list[SubgraphProperty] | None:
    if given is not None:
        return as_properties(given, "option subgraph_property")
    if backend is not None:
        return make_properties(backend)
    if g.attrs.get(PROPERTY) is not None:
        return as_properties(g.attrs[PROPERTY], f"g.attrs[{PROPERTY!r}]")
    return None


def as_properties(given: Any, where: str) -> list[SubgraphProperty]:
    """One property or a sequence of them as a list."""
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for one in listed:
        if isinstance(one, type) and issubclass(one, SubgraphProperty):
            raise PartitionError(f"{one.__name__} is a class", where=where, remedy=f"Give an instance: {one.__name__}()")
        if not isinstance(one, SubgraphProperty):
            is_chooser = hasattr(one, "op_names")  # a selector, its class, or a pattern
            remedy = "A property makes selectors: wrap yours, pt.PatternProperty(selector, 'mine')" if is_chooser else None
            raise PartitionError(not_a("a SubgraphProperty", one).replace("it returned", "it holds"), where=where, remedy=remedy)
    if not listed:
        raise PartitionError("the list of properties is empty", where=where)
    return listed


KNOWN = ("subgraph_property", "backend", *PartitionOptions.names(), "inside")


def _check_options(properties: Sequence[SubgraphProperty], options: Mapping[str, Any]) -> None:
    """Raises for an option that no property uses."""
    strange = [name for name in sorted(options) if not any(_takes(p, name) for p in properties)]
    if strange:
        own = [name for p in properties for name in p.options or ()]
        known = (*KNOWN, *own)
        others = f"PartitionGraph takes {', '.join(known)}; others are for a property's pre_partition"
        hint = did_you_mean(strange[0], known) or others
        what = "of that name" if own else "of its own"
        raise PartitionError(f"there is no option {strange[0]!r}, and no property here takes options {what}", remedy=hint)


def _takes(subject: SubgraphProperty, option: str) -> bool:
    """True if the property uses this option. The first class in its MRO with `options`, or with `pre_partition`, decides."""
    for cls in type(subject).__mro__:
        if cls is SubgraphProperty:
            break
        if vars(cls).get("options") is not None:
            return option in vars(cls)["options"]
        if "pre_partition" in vars(cls):
            return True
    return False


Which = Callable[[Node], bool]
"""Returns whether the bodies of a node are partitioned."""


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
