"""Work that is done once, by whoever asks first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from partita.accelerators.process.forking import Guard

T = TypeVar("T")


class Once(Generic[T]):
    """Called with the work: others wait for whoever does it, and get the same result, or the same error. A forked process does
    what its parent had not ended. The work is not kept, since it may hold whoever has this."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._results: list[T] = []
        self._error: Exception | None = None

    def __call__(self, work: Callable[[], T]) -> T:
        with self._guard.lock:
            if self._error is not None:
                raise self._error.with_traceback(None)  # else it would grow with each call
            if not self._results:
                try:
                    self._results.append(work())
                except Exception as error:  # Ctrl-C is no result of the work
                    self._error = error
                    raise
            return self._results[0]
