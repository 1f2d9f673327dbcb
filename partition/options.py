"""Options shared by PartitionGraph, `plan` and `optimize_for`: one list, which appears in their signatures and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from partita.graph.errors import check_flag
from partita.graph.node import Node
from partita.partition.errors import PartitionError

Function = TypeVar("Function", bound=Callable[..., Any])

GivenGroups = Iterable[Iterable[Node | str]]
"""Subgraphs, each given by its nodes or their names."""

OwnGrowth = Callable[[list[Node], Callable[[Node, Node], bool]], GivenGroups]
"""A user's own growth: a function of the nodes that the selector accepts, in topological order, and of a function that returns
whether an edge (producer, consumer) may be inside a subgraph. It returns the subgraphs."""

Growth = str | OwnGrowth
"""The name of a growth, or a function."""


def _option(default: Any, meaning: str) -> Any:
    return attrs.field(default=default, metadata={"meaning": meaning})


@attrs.frozen(slots=True, kw_only=True)
class PartitionOptions:
    """Options for every property of a run; None leaves the choice to the property."""

    growth: Growth | None = _option(None, "how subgraphs grow: a name in `partition.growth.GROWTHS`, or a function of yours")  # noqa: RUF009
    groups: GivenGroups | None = _option(None, "the subgraphs themselves, each a set of nodes or of their names")  # noqa: RUF009
    min_subgraph_size: int | None = _option(None, "subgraphs of fewer ops stay in the graph")
    max_subgraphs: int | None = _option(None, "at most so many subgraphs for each property")
    max_nodes: int | None = _option(None, "subgraphs of more ops are cut into several; a match of a pattern stays in the graph")
    cuts: Collection[str] = _option((), "names of ops before which subgraphs are cut in two; a match of a pattern stays whole")
    dedup_inputs: bool | None = _option(None, "does each outer value enter a subgraph once?")
    infer_types: bool = _option(True, "do selectors and hooks see types in a graph that has none, as InferType infers them?")
    extra: Mapping[str, Any] = attrs.Factory(dict)
    """The properties' own options, for `pre_partition`."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> PartitionOptions:
        """The options by name; those that are not listed here are the properties' own."""
        known = {name: value for name, value in options.items() if name in cls.names()}
        extra = {name: value for name, value in options.items() if name not in known}
        chosen = cls(**known, extra=extra)
        if chosen.dedup_inputs is not None:
            check_flag(chosen.dedup_inputs, "option dedup_inputs", PartitionError)
        check_flag(chosen.infer_types, "option infer_types", PartitionError)
        return chosen

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the options listed here."""
        return tuple(field.name for field in attrs.fields(cls) if "meaning" in field.metadata)


def with_options(function: Function) -> Function:
    """The function, with the options that its `**options` takes listed in signature and docstring."""
    signature = inspect.signature(function)
    *named, rest = signature.parameters.values()
    fields = [field for field in attrs.fields(PartitionOptions) if "meaning" in field.metadata]
    listed = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=str(field.type))
        for field in fields
    ]
    function.__signature__ = signature.replace(parameters=[*named, *listed, rest])  # type: ignore[attr-defined]
    lines = "\n".join(f"        {field.name}: {field.metadata['meaning']}" for field in fields)
    text = f"{(function.__doc__ or '').rstrip()}\n\n    Options, which override those of the properties:\n\n{lines}\n"
    function.__doc__ = f"{text}        {rest.name}: options of the properties' own, for their `pre_partition`\n    "
    return function
