"""Concurrent runs of a compiled subgraph, each on an instance of its own."""

from __future__ import annotations

import threading

import attrs

from partita.accelerators.interface.accelerator import CompiledSubgraph
from partita.accelerators.process.forking import renewed_in_children

MOST = 4
"""Maximum number of instances: each keeps memory for intermediate values. Further callers wait."""


class SideBySide:
    """Lends the subgraph to one caller at a time, and to concurrent callers other instances of the same machine code."""

    def __init__(self, compiled: CompiledSubgraph) -> None:
        self._first = compiled
        self._replicas = _Replicas(compiled)
        renewed_in_children(self)

    def renew(self) -> None:
        """Resets the instances in a forked process, which lacks the threads that had borrowed some."""
        self._replicas = _Replicas(self._first)

    def lent(self) -> Loan:
        """An instance for exclusive use in a `with` statement."""
        return Loan(self._replicas)

    def let_go(self) -> None:
        """Frees the memory of all instances, once they are idle."""
        for compiled in self._replicas.all():
            compiled.let_go()


class _Replicas:
    """The instances in this process."""

    def __init__(self, first: CompiledSubgraph) -> None:
        self._first = first
        self._idle = [first]
        self._all = [first]
        self._waiting = 0
        self._changed = threading.Condition()

    def borrow(self) -> CompiledSubgraph:
        """The instance used last, or a new one, or the next one that is given back."""
        try:
            return self._idle.pop()  # without the lock, which costs a microsecond
        except IndexError:
            return self._another_or_next()

    def _another_or_next(self) -> CompiledSubgraph:
        """A new instance, or else the next one that is given back. `_waiting` is incremented before `_idle` is checked, so that a
        caller that gives one back afterwards takes the lock, and notifies once the waiter sleeps."""
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
        """All instances, idle or running."""
        with self._changed:
            return tuple(self._all)

    def give_back(self, borrowed: CompiledSubgraph) -> None:
        """Returns an instance for others to use."""
        self._idle.append(borrowed)
        if self._waiting:
            with self._changed:
                self._changed.notify()


@attrs.define(slots=True, eq=False)
class Loan:
    """A subgraph that is borrowed during a `with` statement."""

    _replicas: _Replicas
    _borrowed: CompiledSubgraph | None = None

    def __enter__(self) -> CompiledSubgraph:
        self._borrowed = self._replicas.borrow()
        return self._borrowed

    def __exit__(self, *error: object) -> None:
        assert self._borrowed is not None
        self._replicas.give_back(self._borrowed)
