"""Application of passes, with checks of their prerequisites and results."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from typing import Any, TypeVar

import attrs

from partita.graph.errors import PartitaError, PassError, did_you_mean
from partita.graph.graph import Graph
from partita.graph.logs import logger
from partita.graph.verify import verify
from partita.passes.registry import PassInfo, pass_info, pass_names, providers
from partita.passes.trace import DumpTarget, PassRecord, PassTrace, dumper
from partita.passes.views import TypeView


@attrs.define(slots=True)
class Settings:
    """Default settings of passes; those of `settings` may be changed at any time."""

    verify: bool = True
    """True if the graph is verified after each pass. False saves the time."""
    isolate_inference: bool = False
    """True if ONNX's version converter runs in a child process, whose crash is survived. For untrusted models."""


settings = Settings()
"""The settings in effect."""

OnPass = Callable[[PassRecord, Graph, Graph], None]
"""Called after each pass with its record, the graph before and the graph after."""

_log = logger("passes")

Item = TypeVar("Item")
Result = TypeVar("Result")


@attrs.frozen(slots=True)
class _Observer:
    """Gets each pass that is applied, with the graph before and after."""

    trace: PassTrace | None
    on_pass: OnPass | None
    write: Callable[[str, Graph], None]
    verify: bool | None

    def began(self, g: Graph) -> None:
        self.write("input", g)

    def ran(self, record: PassRecord, before: Graph, after: Graph) -> None:
        self.write(record.name, after)
        if self.trace is not None:
            self.trace.records.append(record)
        if self.on_pass is not None:
            self.on_pass(record, before, after)


_around: ContextVar[_Observer | None] = ContextVar("watched passes", default=None)
"""The watch of `watch_passes`; None inside of a pass, whose own passes belong to it."""


@contextmanager
def watch_passes(
    *,
    verify: bool | None = None,
    trace: PassTrace | None = None,
    on_pass: OnPass | None = None,
    dump: str | PathLike[str] | DumpTarget | None = None,
) -> Iterator[PassTrace]:
    """Watch all passes that are applied inside, those of devices that compile included; yields the trace.

    The options are those of `apply_pass`; `verify` overrules what each call says. Passes that a device applies to answer a query
    are not watched."""
    trace = PassTrace() if trace is None else trace
    with _watching(_Observer(trace, on_pass, dumper(dump), verify)):
        yield trace


def unwatched() -> Any:
    """A context whose passes no `watch_passes` around it sees."""
    return _watching(None)


def watched_as_here(work: Callable[[Item], Result]) -> Callable[[Item], Result]:
    """The function for another thread, whose passes are watched as this thread's."""
    observer = _around.get()

    def do(item: Item) -> Result:
        with _watching(observer):
            return work(item)

    return do


@contextmanager
def _watching(watch: _Observer | None) -> Iterator[None]:
    token = _around.set(watch)
    try:
        yield
    finally:
        _around.reset(token)


def apply_pass(
    g: Graph,
    passes: str | Sequence[str],
    *,
    verify: bool | None = None,
    trace: PassTrace | None = None,
    on_pass: OnPass | None = None,
    dump: str | PathLike[str] | DumpTarget | None = None,
    without: Collection[str] = (),
    family: str = "",
    **options: Any,
) -> Graph:
    """The graph after one pass, or after several in order; a pipeline's name stands for the passes in it.

    `options` go to the passes that take them; `FoldConstants={"limit": 0}` gives options to that pass alone.
    `verify` (by default `settings.verify`) checks the graph after each pass; `trace` is filled with what ran and how long
    it took; `on_pass` is called after each pass; `dump`, a folder or a function of a title and a text, gets the text form
    before the first pass and after each. `without` names passes to leave out, as to find the one at fault. `family` is the
    compiler among whose passes names are looked up first."""
    if not isinstance(g, Graph):
        raise PassError(
            f"passes are applied to a Graph, not to {type(g).__name__}",
            remedy="Load the model first: pt.load(...)",
        )
    named = [pass_info(name) for name in pass_names(passes, family)]
    given = _options_by_pass(named, options)
    infos = _without(named, without)
    around = _around.get()
    watches = [_Observer(trace, on_pass, dumper(dump), verify), *filter(None, (around,))]
    asked = verify if around is None or around.verify is None else around.verify
    for watch in watches:
        watch.began(g)
    done: list[str] = []
    for info in infos:
        with unwatched():
            result, record = _run(g, info, given[info.name], done, settings.verify if asked is None else asked)
        done.append(info.name)
        _log.debug("%s: %d nodes to %d, %.4f s", info.name, record.nodes_before, record.nodes_after, record.seconds)
        for watch in watches:
            watch.ran(record, g, result)
        g = result
    return g


def _without(infos: Sequence[PassInfo], without: Collection[str]) -> Sequence[PassInfo]:
    """The passes except those of these names."""
    names, left_out = {info.name for info in infos}, [without] if isinstance(without, str) else without
    for name in left_out:
        if name not in names:
            hint = did_you_mean(name, names) or f"There are {', '.join(sorted(names))}"
            raise PassError(f"there is no pass {name!r} to leave out", remedy=hint)
        if any(info.essential for info in infos if info.name == name):
            raise PassError(f"pass {name!r} cannot be left out: what comes after it relies on it")
    return [info for info in infos if info.name not in left_out]


def _run(
    g: Graph, info: PassInfo, options: Mapping[str, Any], done: Sequence[str], verified: bool
) -> tuple[Graph, PassRecord]:
    """Runs one pass, with all checks."""
    _check_needs(g, info, done)
    _check_options(info, options, done)
    before = dict(g.attrs)
    start = time.perf_counter()
    try:
        result = info.run(g, **options)
    except Exception as error:
        if info.family:  # Its class decides whether another device takes over.
            _blame(error, info)
            raise
        raise _failure(info, done, error) from error
    seconds = time.perf_counter() - start
    _check_result(g, result, info, before, done)
    changed = is_changed(g, result)
    result, dropped = _with_true_attributes(g, result, info, changed)
    _check_provided(result, info, done)
    start = time.perf_counter()
    if verified and changed:
        _verify(result, info, done)
    record = PassRecord(
        info.name,
        seconds,
        time.perf_counter() - start if verified else 0.0,
        len(g),
        len(result),
        changed,
        dropped,
        g.name,
    )
    return result, record


def is_changed(before: Graph, after: Graph) -> bool:
    """True if the graphs differ in more than the attributes of passes."""
    if before is after:
        return False
    return (
        len(before.nodes) != len(after.nodes)
        or any(a is not b for a, b in zip(before.nodes, after.nodes, strict=True))
        or any(
            getattr(before, part) != getattr(after, part)
            for part in ("inputs", "outputs", "output_names", "opsets")
        )
    )


def _options_by_pass(infos: Sequence[PassInfo], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The options of each pass; raises for an option that no pass takes."""
    given: dict[str, dict[str, Any]] = {info.name: {} for info in infos}
    for option, value in options.items():
        if option in given and isinstance(value, Mapping):
            continue
        takers = [info for info in infos if info.accepts(option)]
        if not takers:
            raise _unknown_option(option, infos)
        for info in takers:
            given[info.name][option] = value
    for info in infos:
        own = options.get(info.name)
        for option, value in own.items() if isinstance(own, Mapping) else ():
            if not info.accepts(option):
                raise _unknown_option(option, [info])
            given[info.name][option] = value
    return given


def _unknown_option(option: str, infos: Sequence[PassInfo]) -> PassError:
    known = sorted(
        {name for info in infos for name in info.options or ()}
        | {info.name for info in infos if len(infos) > 1}
    )
    names = list(dict.fromkeys(info.name for info in infos))
    hint = did_you_mean(option, known) or (f"There are {', '.join(known)}" if known else "It takes none")
    if len(names) == 1:
        return PassError(f"there is no option {option!r}", where=f"pass {names[0]!r}", remedy=hint)
    return PassError(f"none of the passes {', '.join(names)} has an option {option!r}", remedy=hint)


def _check_needs(g: Graph, info: PassInfo, done: Sequence[str]) -> None:
    for need in info.needs:
        if need in g.attrs:
            continue
        names = " or ".join(map(repr, providers(need)))
        raise PassError(
            f"the pass needs the graph attribute {need!r}, which is not there",
            where=_where(info, done),
            remedy=f"Run {names} before it"
            if names
            else f"No registered pass provides it; set g.attrs[{need!r}]",
        )


def _check_options(info: PassInfo, options: Mapping[str, Any], done: Sequence[str]) -> None:
    """PassError where an option without a default is not given, as by a caller who is not a device."""
    for name in sorted(info.required - options.keys()):
        given = f"Only a device of the family {info.family!r} runs it, and gives {name}" if info.family else f"Give {name}=..."
        raise PassError(f"the pass needs the option {name!r}, which is not given", where=_where(info, done), remedy=given)


def _check_result(
    g: Graph, result: Any, info: PassInfo, before: Mapping[str, Any], done: Sequence[str]
) -> None:
    if not isinstance(result, Graph):
        remedy = "End it with `return g`" if result is None else None
        raise PassError(
            f"the pass returned {type(result).__name__}, not a Graph", where=_where(info, done), remedy=remedy
        )
    touched = [
        k for k in before.keys() | g.attrs.keys() if k not in before or before[k] is not g.attrs.get(k)
    ]
    if touched:
        raise PassError(
            f"the pass changed the graph that it was given: g.attrs[{min(touched)!r}]",
            where=_where(info, done),
            remedy="Return another graph: g.evolve(attrs={**g.attrs, ...})",
        )


def _with_true_attributes(
    g: Graph, result: Graph, info: PassInfo, changed: bool
) -> tuple[Graph, tuple[str, ...]]:
    """The graph without attributes that were true of the previous graph and may be stale."""
    stale = {
        k
        for k, v in result.attrs.items()
        if changed and k not in info.keeps and k in g.attrs and g.attrs[k] is v
    }
    stale -= set(info.provides)
    views = {
        k: v
        for k, v in result.attrs.items()
        if isinstance(v, TypeView) and k not in stale and not v.is_of(result)
    }
    if not stale and not views:
        return result, ()
    if result is g:
        return g, ()
    for name in stale:
        del result.attrs[name]
    result.attrs.update((name, view.seen_on(result)) for name, view in views.items())
    return result, tuple(sorted(stale))


def _check_provided(result: Graph, info: PassInfo, done: Sequence[str]) -> None:
    for name in info.provides:
        if name not in result.attrs:
            raise PassError(
                f"the pass declares that it provides the graph attribute {name!r} and did not",
                where=_where(info, done),
                remedy="Set it in the graph it returns, or take it out of provides=",
            )


def _verify(result: Graph, info: PassInfo, done: Sequence[str]) -> None:
    try:
        verify(result, schemas=not info.family)
    except PartitaError as error:
        raise _failure(info, done, error, "the pass returned a graph that is not well formed: ") from error


def _failure(info: PassInfo, done: Sequence[str], error: Exception, said: str = "") -> PassError:
    """The pass's error as PassError, with the pass and those that ran before it."""
    at = [note for note in getattr(error, "__notes__", ()) if note.startswith("node ")]
    mine = error if isinstance(error, PartitaError) else PartitaError(f"{type(error).__name__}: {error}")
    inner = mine.where or (at[0] if at else None)
    where = _where(info, done) + (f", {inner}" if inner else "")
    return PassError(said + mine.cause, where=where, remedy=mine.remedy)


def _blame(error: Exception, info: PassInfo) -> None:
    """Name the pass in an error that keeps its class."""
    if isinstance(error, PartitaError):
        error.within(f"pass {info.full_name!r}")
    else:
        error.add_note(f"pass {info.full_name!r}")


def _where(info: PassInfo, done: Sequence[str]) -> str:
    return f"pass {info.full_name!r}" + (f" (after {', '.join(done)})" if done else "")
