"""The table of passes and of pipelines, which are named sequences of passes."""

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
"""Attributes that all passes keep: requests of users to a later pass, and notes on the graph's file; neither depends on
the graph's contents."""

REPORT = "partition_report"
"""The graph attribute with PartitionGraph's report."""


@attrs.frozen(slots=True)
class PassInfo:
    """One pass and its declarations."""

    name: str
    """The pass's name."""
    run: PassFunction
    """The function of the pass; it never changes the given graph."""
    needs: tuple[str, ...] = ()
    """Required graph attributes."""
    provides: tuple[str, ...] = ()
    """Graph attributes that it sets."""
    keeps: tuple[str, ...] = ()
    """Graph attributes that remain true of the result; others are dropped if the graph changed."""
    options: frozenset[str] | None = frozenset()
    """The names of its options; None if it takes any."""

    def accepts(self, option: str) -> bool:
        """True if the pass takes this option."""
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
    """Registers the decorated function, `(graph, **options) -> graph`, as a pass of that name."""
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
    """Registers a sequence of passes (or of pipelines, expanded now) under a name."""
    if isinstance(passes, str):
        raise PassError(
            "a pipeline is a sequence of names", where=f"pipeline {name!r}", remedy=f"Write ({passes!r},)"
        )
    _refuse_known(name, replace)
    flat = tuple(pass_names(passes))
    _passes.pop(name, None)
    _pipelines[name] = flat


def unregister_pass(name: str) -> None:
    """Removes a pass or a pipeline."""
    if _passes.pop(name, None) is None and _pipelines.pop(name, None) is None:
        raise _unknown(name)


def list_passes() -> tuple[str, ...]:
    """The names of all passes, sorted."""
    return tuple(sorted(_passes))


def list_pipelines() -> dict[str, tuple[str, ...]]:
    """The passes in each pipeline."""
    return dict(_pipelines)


def pass_info(name: str) -> PassInfo:
    """The pass of that name."""
    if name not in _passes:
        raise _unknown(name)
    return _passes[name]


def pass_names(names: str | Sequence[str]) -> list[str]:
    """The passes in order, with pipelines expanded."""
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
    """The names of a pass's options; None if it takes any."""
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
