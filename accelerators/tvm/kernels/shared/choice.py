"""Which of several ways a kernel is made: the one that was measured to be fastest on this machine, else a cost model's guess.

A kernel's room writes `choose("tile", candidates, cost)` wherever there are several ways. Without tuning that is the candidate of
least cost. `pt.tune` drafts the same body again and again, each time taking other candidates, measures the kernels, and notes
which candidates made the fastest; later compilations find the notes by the body's key."""

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
    """The candidate to take for each choice, by the choice's name and as `str` writes it; one that is not offered any more is
    passed over."""
    offered: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    """The candidates that each choice had, by the choice's name; the one of least cost comes first."""


_current: ContextVar[Choices | None] = ContextVar("choices", default=None)


def choose(what: str, candidates: Iterable[T], cost: Callable[[T], Any]) -> T:
    """One of the candidates; `what` names the choice among those of the kernel.

    Candidates are known by their text: give them a class whose `str` says all that they differ in, such as an attrs class, or
    tuples of numbers. Where two cost the same the first is taken."""
    ranked = sorted(candidates, key=cost)
    current = _current.get()
    if current is None:
        return ranked[0]
    named = {str(candidate): candidate for candidate in reversed(ranked)}
    current.offered[what] = tuple(reversed(named))
    return named.get(current.wanted.get(what, ""), ranked[0])


@contextmanager
def choosing(wanted: Mapping[str, str]) -> Iterator[Choices]:
    """Choices inside take these candidates, and are noted."""
    choices = Choices(wanted)
    token = _current.set(choices)
    try:
        yield choices
    finally:
        _current.reset(token)
