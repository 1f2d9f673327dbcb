"""Inference of missing types, done once per graph, so that selectors, properties and devices see shapes and element types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import with_changes
from partita.partition.pattern import Part, Pattern
from partita.partition.property import AffinityProperty, PatternProperty, SubgraphProperty, sees_bodies
from partita.partition.selector import ContainOpSelector, SubgraphSelector
from partita.passes import apply_pass
from partita.passes.views import TypeView

Notes = tuple[str, ...]
"""Notes for the report."""


@attrs.frozen(slots=True, eq=False)
class Typed:
    """The typed graph that is partitioned, and its source."""

    graph: Graph
    """The graph with types."""
    source: Graph
    """The original graph: the same object if there was nothing to infer."""
    notes: Notes = ()
    """Notes on what could not be inferred."""
    inferred: bool = True
    """True if types were requested."""


def with_types(g: Graph, infer_types: bool = True, properties: Sequence[SubgraphProperty] | None = None) -> Typed:
    """The graph with types as by InferType; the graph itself if it has types already, none are requested,
    or no property uses them.

    Nodes are copied if a type is new. The inference runs once per graph object, which caches the result; affinities
    are the current ones of the graph's nodes. Linear."""
    looked_at = properties is None or any(map(looks_at_types, properties))
    if not (infer_types and looked_at and _lacks_types(g)):
        return Typed(g, g, inferred=infer_types)
    if g.typed is None:
        g.keep_typed(*_inferred(g))
    assert g.typed is not None
    twin, notes = g.typed
    if any(a.affinity != b.affinity for a, b in zip(twin.nodes, g.nodes, strict=True)):
        twin = _with_affinities(twin, g)
        g.keep_typed(twin, notes)
    return Typed(twin.evolve(attrs=g.attrs), g, notes)


class TypedBodies:
    """The graphs inside a graph, with types."""

    def __init__(self, typed: Typed) -> None:
        self._typed = typed
        self._copies: dict[Graph, Graph] = {}
        waiting = [(typed.source, typed.graph)] if typed.graph is not typed.source else []
        while waiting:
            source, copy = waiting.pop()
            if source not in self._copies and _same_names(source, copy):
                self._copies[source] = copy
                bodies = [zip(a.bodies, b.bodies, strict=True) for a, b in zip(source.nodes, copy.nodes, strict=True)]
                waiting += [(own, other) for pairs in bodies for (_, own), (_, other) in pairs]

    def of(self, body: Graph, changed: Graph) -> Typed:
        """A graph inside, after its own bodies changed, with its types."""
        copy = self._copies.get(body)
        shown = changed if copy is None else _with_types_of(changed, copy)
        return attrs.evolve(self._typed, graph=shown, source=changed)


def _same_names(a: Graph, b: Graph) -> bool:
    return [node.name for node in a.nodes] == [node.name for node in b.nodes]


def _with_types_of(g: Graph, typed: Graph) -> Graph:
    """The graph with the types of another with the same nodes."""
    known = {node.name: node.output_types for node in typed.nodes}

    def changes(node: Node) -> dict[str, Any]:
        return {} if node.output_types == known[node.name] else {"output_types": known[node.name]}

    return with_changes(g, changes)


def _lacks_types(g: Graph) -> bool:
    """True if an op's value lacks a type, in a graph that was not inferred yet and has some type to begin with."""
    if any(isinstance(g.attrs.get(key), TypeView) for key in ("shape", "dtype")):
        return False
    ops_lack = any(
        node.is_op and any(known is None and name for known, name in zip(node.output_types, node.output_names, strict=True))
        for node in g.nodes
    )
    return ops_lack and any(node.output_types[0] is not None for node in g.nodes if not node.is_op)


def _inferred(g: Graph) -> tuple[Graph, Notes]:
    """The graph with all types that can be inferred. A graph with contradictions is partitioned nevertheless."""
    bare = g.evolve(attrs={})
    try:
        return apply_pass(bare, "InferType", verify=False), ()
    except PartitaError as error:
        note = f"The types of some values could not be inferred: {error}".replace("\n ", ".")
    try:
        return apply_pass(bare, "InferType", verify=False, strict=False), (note,)
    except PartitaError:
        return bare, (note,)


def _with_affinities(twin: Graph, g: Graph) -> Graph:
    """A copy of the typed graph with the current affinities of the graph's nodes: shared nodes are not changed."""
    wanted = {typed: node.affinity for typed, node in zip(twin.nodes, g.nodes, strict=True)}

    return with_changes(twin, lambda node: {"affinity": wanted[node]} if node.affinity != wanted[node] else {})


def looks_at_types(subject: SubgraphProperty) -> bool:
    """True if the property, or its selector, may use types. False if it only uses op names or affinities."""
    if type(subject) is AffinityProperty:
        return any(map(sees_bodies, subject.properties.values()))
    if type(subject) is PatternProperty:
        return sees_bodies(subject) or _asks(subject.pattern)
    return type(subject) is not SubgraphProperty


def _asks(chooser: SubgraphSelector | Pattern) -> bool:
    """True if user code is called on nodes."""
    if isinstance(chooser, Pattern):
        return _any_predicate(chooser.parts)
    return type(chooser) is not ContainOpSelector or chooser.predicate is not None


def _any_predicate(parts: Iterable[Part]) -> bool:
    operands = [operand for part in parts for operand in part.operands if isinstance(operand, tuple)]
    return any(part.predicate is not None for part in parts) or any(map(_any_predicate, operands))
