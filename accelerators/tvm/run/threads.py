"""Decides how many threads kernels run on by default, and who runs when several callers come at once.

Callers at once have a team of threads each (pool.py). Two that both use all cores would hold each other up in every kernel; here
they take turns, run by run, in the order in which they came, as far as there are cores."""

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
    """Hands out cores: as many runs at once as there are cores for, first come, first served.

    The cores of a thread are noted under its name: an interrupt between two lines of `run_on` loses nothing, and
    whoever takes cores while it has some, because it runs a model within a run, does not wait for itself.
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._free = cores
        self._held: dict[int, int] = {}
        self._waiting: deque[tuple[int, int, threading.Lock]] = deque()
        self._guard = threading.Lock()

    @contextmanager
    def turn(self, threads: int) -> Iterator[None]:
        """Inside, so many cores are the caller's. (`take` and `give` cost a microsecond less.)"""
        try:
            self.take(threads)
            yield
        finally:
            self.give()

    def take(self, threads: int) -> None:
        """Wait for this many cores; `give` has to follow in any case."""
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

    def give(self) -> None:
        """The caller's cores are free again; if it was interrupted while it waited for them, it waits no more."""
        me = threading.get_ident()
        with self._guard:
            if me in self._held:
                self._put_back(me)
            elif self._waiting:
                self._waiting = deque(item for item in self._waiting if item[1] != me)
            if self._waiting:
                self._next()

    # An interrupt comes between a call and what follows it: none of these lines that belong together has a call in it.

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
    """Call it, with so many threads for the kernels that it runs."""
    if threads > 1 and not serving.everywhere and getattr(_configured, "generation", _generation) != _generation:
        return _helper().submit(lambda: run_on(threads, call)).result()
    turns = _turns
    try:
        turns.take(threads)
        set_threads(threads)
        return call()
    finally:
        turns.give()


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


def _quiet() -> None:
    """Before a fork: let no run go on meanwhile. The child would find TVM's locks as another thread held them."""
    _turns.take(_turns.cores)


def _go_on() -> None:
    _turns.give()


def _forked() -> None:
    global _generation, _turns, _elsewhere
    _generation, _turns, _elsewhere = _generation + 1, Turns(usable_cores()), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_quiet, after_in_parent=_go_on, after_in_child=_forked)
