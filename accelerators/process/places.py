"""Places for work that takes all cores and much memory: who comes when all are taken waits in a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from partita.accelerators.process.cores import usable_cores
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.accelerators.process.free_memory import free_memory

CORES = 4
"""So many cores have work for most of the time while one model is compiled, so that there is a place for each such number."""

LOOK = 1.0
"""Seconds between two looks at the memory that is free, which others may give back unseen."""


class GivenUp(Exception):
    """Nobody needs the work any more that waited for a place."""


class Worker:
    """One who wants a place for his work. It is given up by whoever drops the last reference to what the work is for, at any time
    and in any thread, so that `give_up` waits for no lock."""

    def __init__(self) -> None:
        self.is_given_up = False
        self._news: SimpleQueue[None] = SimpleQueue()

    def give_up(self) -> None:
        """Leave the queue."""
        self.is_given_up = True
        self.look()

    def look(self) -> None:
        """Have him look whether it is his turn."""
        self._news.put(None)

    def wait(self) -> None:
        """Wait until there may be news."""
        with suppress(Empty):
            self._news.get(timeout=LOOK)


class Places:
    """The work that is done now, and the queue of what waits. One worker always has a place, others if there is room."""

    def __init__(self, most: Callable[[], int], free: Callable[[], int | None]) -> None:
        """`most` counts the places, `free` the bytes that are left."""
        self._most, self._free = most, free
        self._guard = Guard()
        self._waiting = deque[Worker]()
        self._inside = list[Worker]()
        renewed_in_children(self)

    @contextmanager
    def place(self, worker: Worker, needed: int) -> Iterator[None]:
        """Inside, the worker has a place, for work that needs so many bytes. GivenUp if he was given up before."""
        try:
            with self._guard.lock:
                self._waiting.append(worker)
            while not worker.is_given_up and not self._enters(worker, needed):
                worker.wait()
            if worker.is_given_up:
                raise GivenUp
            yield
        finally:
            self._leave(worker)

    @property
    def is_wanted(self) -> bool:
        """Does anybody wait?"""
        return bool(self._waiting)

    def _enters(self, worker: Worker, needed: int) -> bool:
        with self._guard.lock:
            is_next = bool(self._waiting) and self._waiting[0] is worker
            if not is_next or (self._inside and not self._has_room(needed)):
                return False
            self._inside.append(self._waiting.popleft())
            following = self._waiting[0] if self._waiting else None
        if following is not None:
            following.look()
        return True

    def _has_room(self, needed: int) -> bool:
        if len(self._inside) >= self._most():
            return False
        free = self._free()
        return free is None or free >= needed

    def _leave(self, worker: Worker) -> None:
        with self._guard.lock:
            with suppress(ValueError):  # a forked process has none of those inside, nor of those that wait
                (self._inside if worker in self._inside else self._waiting).remove(worker)
            following = self._waiting[0] if self._waiting else None
        if following is not None:
            following.look()

    def renew(self) -> None:
        """In a forked process no thread works, and none waits."""
        self._waiting, self._inside = deque(), []


places = Places(lambda: max(1, usable_cores() // CORES), free_memory)
"""Those of this process."""
