"""How many threads kernels run on by default, and who runs when several callers come at once.

Each thread that calls has a team of threads of its own (pool.py). Two callers that both use all cores would hold each other up in
every kernel; here they take turns, run by run, in the order in which they came, as far as there are cores."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from accelerators.tvm.cores import usable_cores
from accelerators.tvm.pool import serving
from accelerators.tvm.runtime import function

T = TypeVar("T")


class Turns:
    """Hands out cores: so many runs at once as there are cores for, first come, first served."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._free = cores
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._guard = threading.Lock()

    @contextmanager
    def turn(self, threads: int) -> Iterator[None]:
        """Inside, so many cores are the caller's."""
        taken = self.take(threads)
        try:
            yield
        finally:
            self.give(taken)

    def take(self, threads: int) -> int:
        """Wait for so many cores; how many they are, to give back. (`turn` does both, and costs a microsecond more.)"""
        wanted = min(max(threads, 1), self.cores)
        self._take(wanted)
        return wanted

    def _take(self, wanted: int) -> None:
        with self._guard:
            if not self._waiting and wanted <= self._free:
                self._free -= wanted
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append((wanted, mine))
        try:
            mine.acquire()
        except BaseException:
            self._leave(wanted, mine)
            raise

    def _leave(self, wanted: int, mine: threading.Lock) -> None:
        """The caller was interrupted while it waited, or just when its turn came."""
        with self._guard:
            before = len(self._waiting)
            self._waiting = deque(item for item in self._waiting if item[1] is not mine)
            there = len(self._waiting) == before
        self.give(wanted if there else 0)

    def give(self, count: int) -> None:
        """So many cores are free again."""
        with self._guard:
            self._free += count
            while self._waiting and self._waiting[0][0] <= self._free:
                wanted, other = self._waiting.popleft()
                self._free -= wanted
                other.release()


_configured = threading.local()
_turns = Turns(usable_cores())
_generation = 0
_elsewhere: ThreadPoolExecutor | None = None


def run_on(threads: int, call: Callable[[], T]) -> T:
    """Call it, with so many threads for the kernels that it runs."""
    if threads > 1 and not serving.everywhere and getattr(_configured, "generation", _generation) != _generation:
        return _helper().submit(lambda: run_on(threads, call)).result()
    turns = _turns
    taken = turns.take(threads)
    try:
        set_threads(threads)
        return call()
    finally:
        turns.give(taken)


def set_threads(count: int) -> None:
    """Let kernels that this thread starts run on so many threads."""
    wanted = count, serving.everywhere, serving.is_here
    if getattr(_configured, "wanted", None) != wanted:
        serving.use(count)
        if not serving.everywhere:
            set_tvm_threads(count)
        _configured.wanted, _configured.generation = wanted, _generation


def set_tvm_threads(count: int) -> None:
    """The same for kernels that run on TVM's own threads, because no linker put them into a library."""
    function("runtime.config_threadpool")(1, count)


def _helper() -> ThreadPoolExecutor:
    """A thread with a pool of TVM's of its own, for the one that forked: its pool's threads are not in this process, and it would
    wait for them for ever."""
    global _elsewhere  # noqa: PLW0603  one for the process
    if _elsewhere is None:
        _elsewhere = ThreadPoolExecutor(1, "partita-run")
    return _elsewhere


def _forked() -> None:
    global _generation, _turns, _elsewhere
    _generation, _turns, _elsewhere = _generation + 1, Turns(usable_cores()), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

