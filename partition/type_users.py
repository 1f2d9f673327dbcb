"""Tests whether a property or selector uses the types of values; if none does, none have to be inferred."""

from __future__ import annotations

from collections.abc import Iterable

from partita.partition.pattern import Part, Pattern
from partita.partition.property import AffinityProperty, PatternProperty, SubgraphProperty
from partita.partition.selector import ContainOpSelector, SubgraphSelector

SEEING = ("create_subgraph_node", "review_subgraph", "init_subgraph_inputs")
"""The hooks that get bodies, or their inputs."""


def own_hooks(subject: SubgraphProperty) -> set[str]:
    """The hooks that the property overrides."""
    kind, base = type(subject), SubgraphProperty
    return {hook for hook in dir(base) if getattr(kind, hook, None) is not getattr(base, hook)} | vars(subject).keys()


def looks_at_types(subject: SubgraphProperty) -> bool:
    """True if the property, or its selector, may use types. False if it only uses op names or affinities."""
    if type(subject) is AffinityProperty:
        return any(not own_hooks(own).isdisjoint(SEEING) for own in subject.properties.values())
    if type(subject) is PatternProperty:
        return not own_hooks(subject).isdisjoint(SEEING) or _asks(subject.pattern)
    return type(subject) is not SubgraphProperty


def _asks(chooser: SubgraphSelector | Pattern) -> bool:
    """True if user code is called on nodes."""
    if isinstance(chooser, Pattern):
        return _any_predicate(chooser.parts)
    return type(chooser) is not ContainOpSelector or chooser.predicate is not None


def _any_predicate(parts: Iterable[Part]) -> bool:
    operands = [operand for part in parts for operand in part.operands if isinstance(operand, tuple)]
    return any(part.predicate is not None for part in parts) or any(map(_any_predicate, operands))
