"""A compiled subgraph that several callers run at once, each on code of its own."""

from __future__ import annotations

import threading

import attrs

from partita.accelerators.interface.accelerator import CompiledSubgraph
from partita.accelerators.process.forking import renewed_in_children

MOST = 4
"""So many run at once; each keeps memory for what it computes. Who comes later waits."""


class SideBySide:
    """Lends the subgraph to one caller after another, and while it is lent others of the same machine code."""

    def __init__(self, compiled: CompiledSubgraph) -> None:
        self._first = compiled
        self._crew = _Crew(compiled)
        renewed_in_children(self)

    def renew(self) -> None:
        """Start anew in a forked process, which lacks the threads of its parent that had borrowed some."""
        self._crew = _Crew(self._first)

    def lent(self) -> Loan:
        """One that nobody else runs meanwhile, for a `with` statement."""
        return Loan(self._crew)

    def let_go(self) -> None:
        """All of them free what they hold, once they run no more."""
        for compiled in self._crew.all():
            compiled.let_go()


class _Crew:
    """The subgraphs that there are in this process."""

    def __init__(self, first: CompiledSubgraph) -> None:
        self._first = first
        self._idle = [first]
        self._all = [first]
        self._waiting = 0
        self._changed = threading.Condition()

    def borrow(self) -> CompiledSubgraph:
        """The one that was used last, or a new one, or whichever is given back next."""
        try:
            return self._idle.pop()  # Without the lock, which costs a microsecond.
        except IndexError:
            return self._another_or_next()

    def _another_or_next(self) -> CompiledSubgraph:
        """A new one, or else whichever is given back next. Whoever gives one back after none was found here sees that somebody
        waits, and gets the lock to say so once that one sleeps."""
        with self._changed:
            self._waiting += 1
            try:
                while not self._idle:
                    another = self._first.another() if len(self._all) < MOST else None
                    if another is not None:
                        self._all.append(another)
                        return another
                    self._changed.wait()
            finally:
                self._waiting -= 1
        return self.borrow()

    def all(self) -> tuple[CompiledSubgraph, ...]:
        """Those that are idle, and those that run."""
        with self._changed:
            return tuple(self._all)

    def give_back(self, borrowed: CompiledSubgraph) -> None:
        """It is there for others again."""
        self._idle.append(borrowed)
        if self._waiting:
            with self._changed:
                self._changed.notify()


@attrs.define(slots=True, eq=False)
class Loan:
    """A subgraph that is borrowed as a `with` statement begins, and given back as it ends."""

    _crew: _Crew
    _borrowed: CompiledSubgraph | None = None

    def __enter__(self) -> CompiledSubgraph:
        self._borrowed = self._crew.borrow()
        return self._borrowed

    def __exit__(self, *error: object) -> None:
        assert self._borrowed is not None
        self._crew.give_back(self._borrowed)
