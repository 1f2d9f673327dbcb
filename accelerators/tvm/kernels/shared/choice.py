"""Choice among several ways to make a kernel: the fastest measured on this machine, else the cheapest by a cost model.

A kernel calls `choose("tile", candidates, cost)` wherever there are several ways. Without tuning that is the candidate of least
cost. `pt.tune` drafts the same body several times with different candidates, measures the kernels, and records the candidates of
the fastest one; later compilations find the record by the body's key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


@attrs.define(slots=True, eq=False)
class Choices:
    """The choices made while one body is drafted."""

    wanted: Mapping[str, str] = attrs.field(factory=dict)
    """The candidate to take for each choice, as its `str`, by the choice's name. Candidates that are no longer offered are
    ignored."""
    offered: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    """The candidates of each choice, by the choice's name; the one of least cost comes first."""


_current: ContextVar[Choices | None] = ContextVar("choices", default=None)


def choose(what: str, candidates: Iterable[T], cost: Callable[[T], Any]) -> T:
    """One of the candidates; `what` is the name of the choice within its kernel.

    Candidates are identified by their text: use a class whose `str` contains all that distinguishes them, such as an attrs class,
    or tuples of numbers. Of candidates of equal cost the first is taken."""
    ranked = sorted(candidates, key=cost)
    current = _current.get()
    if current is None:
        return ranked[0]
    named = {str(candidate): candidate for candidate in reversed(ranked)}
    current.offered[what] = tuple(reversed(named))
    return named.get(current.wanted.get(what, ""), ranked[0])


@contextmanager
def choosing(wanted: Mapping[str, str]) -> Iterator[Choices]:
    """Inside the block, choices take the `wanted` candidates and are recorded."""
    choices = Choices(wanted)
    token = _current.set(choices)
    try:
        yield choices
    finally:
        _current.reset(token)
