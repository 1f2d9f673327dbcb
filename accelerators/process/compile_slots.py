"""Slots for work that takes all cores and much memory, with a queue of waiting workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from partita.accelerators.process.cores import group_folders, usable_cores
from partita.accelerators.process.forking import Guard, renewed_in_children

CORES = 4
"""Number of cores that compiling one model keeps busy; there is one slot for each such number."""

LOOK = 1.0
"""Polling interval in seconds of free memory, which other processes may release unnoticed."""


class GivenUp(Exception):
    """The work that waited for a slot is not needed any more."""


class SlotSeeker:
    """A worker that wants a slot. It is given up when the last reference to its result is dropped, at any time
    and in any thread, so `give_up` waits for no lock."""

    def __init__(self) -> None:
        self.is_given_up = False
        self._news: SimpleQueue[None] = SimpleQueue()

    def give_up(self) -> None:
        """Leaves the queue."""
        self.is_given_up = True
        self.look()

    def look(self) -> None:
        """Wakes the worker to check if it is next."""
        self._news.put(None)

    def wait(self) -> None:
        """Waits until the state may have changed."""
        with suppress(Empty):
            self._news.get(timeout=LOOK)


class Places:
    """The running work, and the queue of waiting work. One worker always gets a slot, others if there is room."""

    def __init__(self, most: Callable[[], int], free: Callable[[], int | None]) -> None:
        """`most` returns the number of slots, `free` the available bytes."""
        self._most, self._free = most, free
        self._guard = Guard()
        self._waiting = deque[SlotSeeker]()
        self._inside = list[SlotSeeker]()
        renewed_in_children(self)

    @contextmanager
    def place(self, worker: SlotSeeker, needed: int) -> Iterator[None]:
        """A context in which the worker has a slot, for work that needs `needed` bytes; GivenUp if it was given up before."""
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
    def are_free(self) -> bool:
        """True if no worker has a slot, or waits for one."""
        return not (self._inside or self._waiting)

    @property
    def is_wanted(self) -> bool:
        """True if some worker is waiting."""
        return bool(self._waiting)

    def _enters(self, worker: SlotSeeker, needed: int) -> bool:
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

    def _leave(self, worker: SlotSeeker) -> None:
        with self._guard.lock:
            with suppress(ValueError):  # a forked process has no running or waiting workers
                (self._inside if worker in self._inside else self._waiting).remove(worker)
            following = self._waiting[0] if self._waiting else None
        if following is not None:
            following.look()

    def renew(self) -> None:
        """Resets the queue in a forked process, where no thread works or waits."""
        self._waiting, self._inside = deque(), []


_MACHINE = Path("/proc/meminfo")

_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""A group's files with its limit and usage, in either version of the system's interface."""


def free_memory() -> int | None:
    """Memory in bytes available to this process: that of the machine, and of its control groups; None if the system does not
    report it."""
    try:
        left = [*_of_machine(), *_of_groups()]
    except (OSError, ValueError):
        return None
    return max(0, min(left)) if left else None


def _of_machine() -> Iterator[int]:
    for line in _MACHINE.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) << 10


def _of_groups() -> Iterator[int]:
    """The remaining memory of each group. Inactive file pages count as free, since the system can reclaim them."""
    for folder in group_folders("memory"):
        for limit, used in _FILES:
            if (folder / limit).is_file() and (text := (folder / limit).read_text().strip()) != "max":
                yield int(text) - int((folder / used).read_text()) + _idle_files(folder)


def _idle_files(folder: Path) -> int:
    lines = (folder / "memory.stat").read_text().splitlines()
    counts = dict(line.split() for line in lines)
    return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))


places = Places(lambda: max(1, usable_cores() // CORES), free_memory)
"""The slots of this process."""
