"""Default number of threads for kernels, and scheduling of concurrent callers.

Concurrent callers have a team of threads each (pool.py). Two that use all cores would delay each other in every kernel; so they
take turns, run by run, first come first served, as far as there are cores."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from partita.accelerators.process.cores import usable_cores
from partita.accelerators.tvm.run.pool import serving
from partita.accelerators.tvm.run.runtime import function

T = TypeVar("T")


class Turns:
    """Assigns cores to runs: as many concurrent runs as there are cores for, first come, first served.

    The cores of a thread are recorded under its id. So an interrupt between two lines of `run_on` loses nothing, and a thread
    that takes cores while it has some, because it runs a model within a run, does not wait for itself."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._free = cores
        self._held: dict[int, int] = {}
        self._waiting: deque[tuple[int, int, threading.Lock]] = deque()
        self._guard = threading.Lock()

    @contextmanager
    def turn(self, threads: int) -> Iterator[None]:
        """A context in which the caller has this many cores. (`take` and `give` cost a microsecond less.)"""
        try:
            self.take(threads)
            yield
        finally:
            self.give()

    def take(self, threads: int) -> None:
        """Wait for this many cores; `give` must follow in any case."""
        wanted, me = min(max(threads, 1), self.cores), threading.get_ident()
        with self._guard:
            if me in self._held:
                self._put_back(me)
            if not self._waiting and wanted <= self._free:
                self._free, self._held[me] = self._free - wanted, wanted
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append((wanted, me, mine))
            self._next()
        mine.acquire()

    def pause(self) -> None:
        """Wait for all runs to end, and let none begin until `resume`."""
        self.take(self.cores)

    def resume(self) -> None:
        """Runs may begin again."""
        self.give()

    def forked(self) -> Turns:
        """The turns of a forked process, in which no run is."""
        return Turns(usable_cores())

    def give(self) -> None:
        """Release the caller's cores; if it was interrupted while waiting for them, it leaves the queue."""
        me = threading.get_ident()
        with self._guard:
            if me in self._held:
                self._put_back(me)
            elif self._waiting:
                self._waiting = deque(item for item in self._waiting if item[1] != me)
            if self._waiting:
                self._next()

    # Interrupts come only at calls: none of these lines that belong together contains one.

    def _put_back(self, who: int) -> None:
        self._free += self._held[who]
        del self._held[who]

    def _next(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            wanted, who, other = self._waiting[0]
            del self._waiting[0]
            self._free, self._held[who] = self._free - wanted, wanted
            other.release()


_configured = threading.local()
_turns = Turns(usable_cores())
_generation = 0
_elsewhere: ThreadPoolExecutor | None = None


def run_on(threads: int, call: Callable[[], T]) -> T:
    """Call the function with this many threads for the kernels that it runs."""
    if threads > 1 and not serving.everywhere and getattr(_configured, "generation", _generation) != _generation:
        return _helper().submit(lambda: run_on(threads, call)).result()
    turns = _turns
    try:
        turns.take(threads)
        while turns is not _turns:
            turns.give()
            turns = _turns
            turns.take(threads)
        set_threads(threads)
        return call()
    finally:
        turns.give()


def replace_turns(turns: Turns) -> None:
    """From now on runs take these turns."""
    global _turns
    _turns.pause()
    former, _turns = _turns, turns
    former.resume()


def set_threads(count: int) -> None:
    """Set the number of threads for kernels that this thread starts."""
    wanted = count, serving.everywhere, serving.is_here
    if serving.is_shared or getattr(_configured, "wanted", None) != wanted:
        serving.use(count)
        if not serving.everywhere:
            set_tvm_threads(count)
        _configured.wanted, _configured.generation = wanted, _generation


def set_tvm_threads(count: int) -> None:
    """The same for kernels on TVM's own threads, which were not linked into a library."""
    function("runtime.config_threadpool")(1, count)


def _helper() -> ThreadPoolExecutor:
    """A thread with a TVM pool of its own, for a forked process: the old pool's threads are not in it, and waiting for them would
    never end."""
    global _elsewhere  # noqa: PLW0603  one for the process
    if _elsewhere is None:
        _elsewhere = ThreadPoolExecutor(1, "partita-run")
    return _elsewhere


def _quiet() -> None:
    """Before a fork: wait for all runs to end. Otherwise the child would inherit TVM's locks as another thread held them."""
    _turns.pause()


def _go_on() -> None:
    _turns.resume()


def _forked() -> None:
    global _generation, _turns, _elsewhere
    _generation, _turns, _elsewhere = _generation + 1, _turns.forked(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_quiet, after_in_parent=_go_on, after_in_child=_forked)
