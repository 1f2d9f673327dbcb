"""The table of passes and of pipelines, which are passes in a row under one name.

A compiler's own passes form a family: they are applied as "tvm.Quantize", or as "Quantize" with `family="tvm"`, and take no name
from others."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import attrs

from partita.graph.errors import PassError, did_you_mean
from partita.graph.graph import NOTES, Graph

PassFunction = Callable[..., Graph]
"""(graph, **options) -> graph."""

Registered = TypeVar("Registered", bound=PassFunction)

LAYOUT_NOTES = "partita.notes"
"""The graph attribute with the lines of the compile report about a graph's layout."""

COMPLAINTS = "partita.complaints"
"""The graph attribute with a text for each output that a device added: the run fails with it where an element is not 0."""

REQUESTS = ("subgraph_property", NOTES, LAYOUT_NOTES, COMPLAINTS)
"""Attributes that passes keep: what users leave for a later pass, and what was noted of the graph or its file; none is a fact
about the graph as it is."""

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
    required: frozenset[str] = frozenset()
    """The keywords without a default."""
    family: str = ""
    """The compiler that the pass belongs to; empty for a pass of any graph."""
    essential: bool = False
    """True if what follows relies on it: it cannot be switched off."""

    @property
    def full_name(self) -> str:
        """The name, after that of the family."""
        return f"{self.family}.{self.name}" if self.family else self.name

    def accepts(self, option: str) -> bool:
        """True if the pass takes this option."""
        return self.options is None or option in self.options


FAMILIES: dict[str, str] = {}
"""The module that registers the passes of each family when it is imported."""

_passes: dict[str, PassInfo] = {}
"""By full name."""
_pipelines: dict[str, tuple[str, ...]] = {}


def register_pass(
    name: str,
    needs: Iterable[str] = (),
    provides: Iterable[str] = (),
    keeps: Iterable[str] = (),
    *,
    replace: bool = False,
    family: str = "",
    essential: bool = False,
) -> Callable[[Registered], Registered]:
    """Make the decorated function, `(graph, **options) -> graph`, a pass of that name; of a compiler's own if it has a `family`.
    An `essential` one cannot be switched off."""
    if not isinstance(name, str):
        raise PassError(f"a pass needs a name, not {name!r}", remedy='Write @register_pass("MyPass")')
    declared = {"needs": needs, "provides": provides, "keeps": keeps}
    for word, names in declared.items():
        if isinstance(names, str):
            raise PassError(
                f"{word} is a sequence of names", where=f"pass {name!r}", remedy=f"Write {word}=({names!r},)"
            )

    def register(function: Registered) -> Registered:
        declared = tuple(needs), tuple(provides), tuple(keeps)
        info = PassInfo(name, function, *declared, *_option_names(name, function), family, essential)
        _refuse_known(info.full_name, replace)
        _pipelines.pop(info.full_name, None)
        _passes[info.full_name] = info
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
    if not isinstance(name, str):
        raise _unknown(name)
    if _passes.pop(name, None) is None and _pipelines.pop(name, None) is None:
        raise _unknown(name)


def list_passes(family: str = "") -> tuple[str, ...]:
    """The names of all passes, sorted: of those that any graph may go through, or of a family, as "tvm"."""
    if not isinstance(family, str):
        raise PassError(f"{family!r:.80} is not a family of passes", remedy='Write "tvm", or leave it out')
    _load(family)
    return tuple(sorted(info.name for info in _passes.values() if info.family == family))


def list_pipelines() -> dict[str, tuple[str, ...]]:
    """The passes in each pipeline."""
    return dict(_pipelines)


def pass_info(name: str, family: str = "") -> PassInfo:
    """The pass of that name, of this family if it has one so named."""
    for home in filter(None, (family, str(name).rpartition(".")[0])):
        _load(home)
    info = _passes.get(f"{family}.{name}") or _passes.get(name)
    if info is None:
        raise _unknown(name, family)
    return info


def pass_names(names: str | Sequence[str], family: str = "") -> list[str]:
    """The full names of the passes meant, in order: a pipeline stands for those in it."""
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise PassError(f"passes are given as a name or a list of names, not {names!r:.60}")
    listed: list[str] = []
    for name in [names] if isinstance(names, str) else names:
        if name in _pipelines:
            listed += _pipelines[name]
        else:
            listed.append(pass_info(name, family).full_name)
    return listed


def providers(attribute: str) -> list[str]:
    """The passes that provide a graph attribute."""
    return [info.full_name for info in _passes.values() if attribute in info.provides]


def _load(family: str) -> None:
    """Import what registers the passes of a family."""
    if family in FAMILIES:
        importlib.import_module(FAMILIES[family])


def _refuse_known(name: str, replace: bool) -> None:
    if not isinstance(name, str) or not name:
        raise PassError(f"a pass needs a name, not {name!r}", remedy='Write @register_pass("MyPass")')
    if not replace and (name in _passes or name in _pipelines):
        kind = "pass" if name in _passes else "pipeline"
        raise PassError(
            f"there is a {kind} {name!r} already", remedy="Choose another name, or say replace=True"
        )


def _unknown(name: object, family: str = "") -> PassError:
    known = [*(info.name for info in _passes.values() if info.family in ("", family)), *_pipelines]
    hint = did_you_mean(str(name), known) or f"There are {', '.join(sorted(known))}"
    return PassError(f"there is no pass {name!r}", remedy=hint)


def _option_names(name: str, function: PassFunction) -> tuple[frozenset[str] | None, frozenset[str]]:
    """The keywords that a pass takes besides the graph, None for any; and those without a default."""
    given: list[Any] = list(inspect.signature(function).parameters.values())
    if not given or given[0].kind not in (given[0].POSITIONAL_ONLY, given[0].POSITIONAL_OR_KEYWORD):
        raise PassError(
            "a pass takes the graph as its first argument",
            where=f"pass {name!r}",
            remedy="Write def my_pass(g, **options)",
        )
    own = [p for p in given[1:] if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = frozenset(p.name for p in own if p.default is p.empty)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in given)
    return None if takes_any else frozenset(p.name for p in own), required
