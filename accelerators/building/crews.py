"""A compiled subgraph that several callers run at once, each on code of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from accelerators.interface.accelerator import CompiledSubgraph
from accelerators.process.forking import renewed_in_children

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

    @contextmanager
    def lent(self) -> Iterator[CompiledSubgraph]:
        """One that nobody else runs meanwhile."""
        crew = self._crew
        borrowed = crew.borrow(self._first)
        try:
            yield borrowed
        finally:
            crew.give_back(borrowed)

    def let_go(self) -> None:
        """All of them free what they hold, once they run no more."""
        for compiled in self._crew.all():
            compiled.let_go()


class _Crew:
    """The subgraphs that there are in this process."""

    def __init__(self, first: CompiledSubgraph) -> None:
        self._idle = [first]
        self._all = [first]
        self._changed = threading.Condition()

    def borrow(self, first: CompiledSubgraph) -> CompiledSubgraph:
        """The one that was used last, or a new one, or whichever is given back next."""
        with self._changed:
            while not self._idle:
                another = first.another() if len(self._all) < MOST else None
                if another is not None:
                    self._all.append(another)
                    return another
                self._changed.wait()
            return self._idle.pop()

    def all(self) -> tuple[CompiledSubgraph, ...]:
        """Those that are idle, and those that run."""
        with self._changed:
            return tuple(self._all)

    def give_back(self, borrowed: CompiledSubgraph) -> None:
        """It is there for others again."""
        with self._changed:
            self._idle.append(borrowed)
            self._changed.notify()
