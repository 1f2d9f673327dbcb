"""Options shared by PartitionGraph, `plan` and `optimize_for`: one list, shown in their signatures and help."""

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
"""A user's own growth, called as `growth(nodes, accepts)`: `nodes` are those that the selector accepts, in topological order;
`accepts(producer, consumer)` is true if that edge may be inside a subgraph. Returns the subgraphs."""

Growth = str | OwnGrowth
"""The name of a growth, or a user's own."""


def _option(default: Any, meaning: str) -> Any:
    return attrs.field(default=default, metadata={"meaning": meaning})


@attrs.frozen(slots=True, kw_only=True)
class PartitionOptions:
    """Options for every property of a run; None leaves the choice to the property."""

    growth: Growth | None = _option(None, "how subgraphs grow: a name in `partition.growth.GROWTHS`, or your own function")  # noqa: RUF009
    groups: GivenGroups | None = _option(None, "the subgraphs themselves, each a set of nodes or of their names")  # noqa: RUF009
    min_subgraph_size: int | None = _option(None, "subgraphs of fewer ops stay in the graph")
    max_subgraphs: int | None = _option(None, "the maximum number of subgraphs of each property")
    max_nodes: int | None = _option(None, "larger subgraphs are cut into several; larger pattern matches stay in the graph")
    cuts: Collection[str] = _option((), "names of ops before which subgraphs are cut in two; a match of a pattern stays whole")
    dedup_inputs: bool | None = _option(None, "each outer value is one input of a subgraph, even if several ops read it")
    infer_types: bool = _option(True, "infer missing types first, so that selectors and hooks see them")
    extra: Mapping[str, Any] = attrs.Factory(dict)
    """The properties' own options, for `pre_partition`."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> PartitionOptions:
        """Reads the options by name; those not listed here belong to the properties."""
        shared = {name: value for name, value in options.items() if name in cls.names()}
        extra = {name: value for name, value in options.items() if name not in shared}
        chosen = cls(**shared, extra=extra)
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
