"""Distributes runs over several executors of the same model: each goes to the least busy one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from partita.accelerators.arrays.on_device import Wanted
from partita.accelerators.process.forking import renewed_in_children
from partita.accelerators.running.executor import Observer, Runs, Watcher


class Spreading:
    """Each executor takes as many concurrent runs as it has room for; further ones wait for the first that is free.

    A nested run stays on the executor of the outer run, so that it does not wait for itself."""

    def __init__(self, executors: Sequence[Runs], room: Sequence[int]) -> None:
        self._executors = executors
        self._room = room
        self._here = threading.local()
        self.renew()
        renewed_in_children(self)

    def run(self, arrays: list[Any], out: Sequence[Wanted | None] | None = None) -> list[Any]:
        """The outputs for these inputs, by the least busy executor."""
        with self._taken() as executor:
            return executor.run(arrays, out)

    def observed(self, arrays: list[Any], observer: Observer, out: Sequence[Wanted | None] | None = None) -> list[Any]:
        """Run once on the least busy executor; the observer is called around each step."""
        with self._taken() as executor:
            return executor.observed(arrays, observer, out)

    def traced(self, arrays: list[Any], observer: Observer, out: Sequence[Wanted | None] | None = None) -> list[Any]:
        """Run once on the least busy executor; the observer is called around each step, on the step's thread."""
        with self._taken() as executor:
            return executor.traced(arrays, observer, out)

    def watched(
        self, arrays: list[Any], watcher: Watcher, out: Sequence[Wanted | None] | None = None, observer: Observer | None = None
    ) -> list[Any]:
        """Run once on the least busy executor; the watcher gets the values after each step."""
        with self._taken() as executor:
            return executor.watched(arrays, watcher, out, observer)

    def renew(self) -> None:
        """Resets the counts in a forked process, in which nothing runs."""
        self._changed = threading.Condition()
        self._running = [0] * len(self._executors)

    def close(self) -> None:
        """Frees the buffers of all executors."""
        for executor in self._executors:
            executor.close()

    @contextmanager
    def _taken(self) -> Iterator[Runs]:
        inside: int | None = getattr(self._here, "number", None)
        if inside is not None:
            yield self._executors[inside]
            return
        changed = self._changed
        with changed:
            changed.wait_for(self._is_room)
            number = min(range(len(self._room)), key=lambda i: (self._running[i] / self._room[i], i))
            self._running[number] += 1
        self._here.number = number
        try:
            yield self._executors[number]
        finally:
            self._here.number = None
            with changed:
                if changed is self._changed:
                    self._running[number] -= 1
                changed.notify()

    def _is_room(self) -> bool:
        return any(running < room for running, room in zip(self._running, self._room, strict=True))
