"""The table of passes and of pipelines, which are passes in a row under one name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import attrs

from partita.graph.errors import PassError, did_you_mean
from partita.graph.graph import NOTES, Graph

PassFunction = Callable[..., Graph]
"""(graph, **options) -> graph."""

Registered = TypeVar("Registered", bound=PassFunction)

REQUESTS = ("subgraph_property", NOTES)
"""Attributes that passes keep: what users leave for a later pass, and what was noted of the graph's file; neither is a fact about
the graph as it is."""

REPORT = "partition_report"
"""The graph attribute that PartitionGraph leaves its report in."""


@attrs.frozen(slots=True)
class PassInfo:
    """One pass and what it declares."""

    name: str
    """The name to apply it by."""
    run: PassFunction
    """The function that does the pass; it never changes the graph that it is given."""
    needs: tuple[str, ...] = ()
    """Graph attributes that have to be there."""
    provides: tuple[str, ...] = ()
    """Graph attributes that are there afterwards."""
    keeps: tuple[str, ...] = ()
    """Graph attributes that stay true of the graph it returns; others are dropped when it changed the graph."""
    options: frozenset[str] | None = frozenset()
    """The keywords it takes; None: any."""

    def accepts(self, option: str) -> bool:
        """Does the pass take this option?"""
        return self.options is None or option in self.options


_passes: dict[str, PassInfo] = {}
_pipelines: dict[str, tuple[str, ...]] = {}


def register_pass(
    name: str,
    needs: Iterable[str] = (),
    provides: Iterable[str] = (),
    keeps: Iterable[str] = (),
    *,
    replace: bool = False,
) -> Callable[[Registered], Registered]:
    """Make the decorated function, `(graph, **options) -> graph`, a pass of that name."""
    if not isinstance(name, str):
        raise PassError(f"a pass needs a name, not {name!r}", remedy='Write @register_pass("MyPass")')
    declared = {"needs": needs, "provides": provides, "keeps": keeps}
    for word, names in declared.items():
        if isinstance(names, str):
            raise PassError(
                f"{word} is a sequence of names", where=f"pass {name!r}", remedy=f"Write {word}=({names!r},)"
            )

    def register(function: Registered) -> Registered:
        _refuse_known(name, replace)
        _pipelines.pop(name, None)
        _passes[name] = PassInfo(
            name, function, tuple(needs), tuple(provides), tuple(keeps), _option_names(name, function)
        )
        return function

    return register


def register_pipeline(name: str, passes: Sequence[str], *, replace: bool = False) -> None:
    """Give a row of passes (or of pipelines, as they are now) a name of its own."""
    if isinstance(passes, str):
        raise PassError(
            "a pipeline is a sequence of names", where=f"pipeline {name!r}", remedy=f"Write ({passes!r},)"
        )
    _refuse_known(name, replace)
    flat = tuple(pass_names(passes))
    _passes.pop(name, None)
    _pipelines[name] = flat


def unregister_pass(name: str) -> None:
    """Forget a pass or a pipeline."""
    if _passes.pop(name, None) is None and _pipelines.pop(name, None) is None:
        raise _unknown(name)


def list_passes() -> tuple[str, ...]:
    """The names of all passes, sorted."""
    return tuple(sorted(_passes))


def list_pipelines() -> dict[str, tuple[str, ...]]:
    """The passes that each named pipeline consists of."""
    return dict(_pipelines)


def pass_info(name: str) -> PassInfo:
    """The pass of that name."""
    if name not in _passes:
        raise _unknown(name)
    return _passes[name]


def pass_names(names: str | Sequence[str]) -> list[str]:
    """The passes meant, in order: a pipeline stands for those in it."""
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise PassError(f"passes are given as a name or a list of names, not {names!r:.60}")
    listed: list[str] = []
    for name in [names] if isinstance(names, str) else names:
        if name in _pipelines:
            listed += _pipelines[name]
        else:
            listed.append(pass_info(name).name)
    return listed


def providers(attribute: str) -> list[str]:
    """The passes that provide a graph attribute."""
    return [info.name for info in _passes.values() if attribute in info.provides]


def _refuse_known(name: str, replace: bool) -> None:
    if not isinstance(name, str) or not name:
        raise PassError(f"a pass needs a name, not {name!r}", remedy='Write @register_pass("MyPass")')
    if not replace and (name in _passes or name in _pipelines):
        kind = "pass" if name in _passes else "pipeline"
        raise PassError(
            f"there is a {kind} {name!r} already", remedy="Choose another name, or say replace=True"
        )


def _unknown(name: object) -> PassError:
    known = [*_passes, *_pipelines]
    hint = did_you_mean(str(name), known) or f"There are {', '.join(sorted(known))}"
    return PassError(f"there is no pass {name!r}", remedy=hint)


def _option_names(name: str, function: PassFunction) -> frozenset[str] | None:
    """The keywords that a pass takes besides the graph."""
    given: list[Any] = list(inspect.signature(function).parameters.values())
    if not given or given[0].kind not in (given[0].POSITIONAL_ONLY, given[0].POSITIONAL_OR_KEYWORD):
        raise PassError(
            "a pass takes the graph as its first argument",
            where=f"pass {name!r}",
            remedy="Write def my_pass(g, **options)",
        )
    if any(p.kind is p.VAR_KEYWORD for p in given):
        return None
    return frozenset(p.name for p in given[1:] if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
