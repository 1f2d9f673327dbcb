"""Thread pools that also work during interpreter exit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from partita.accelerators.process.exit_barrier import main_has_ended

T = TypeVar("T")


class Pool(ThreadPoolExecutor):
    """A pool for work that somebody waits for. Once the main thread has ended, Python starts no more pool threads, while
    non-daemon threads and exit handlers still run: `submit` then runs the work itself."""

    def submit(self, work: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        """The future of the work."""
        if not main_has_ended():
            try:
                return super().submit(work, *args, **named)
            except RuntimeError:
                if not main_has_ended():
                    raise
        future = Future[T]()
        try:
            future.set_result(work(*args, **named))
        except BaseException as error:  # noqa: BLE001  any exception belongs to the waiting caller
            future.set_exception(error)
        return future
