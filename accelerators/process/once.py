"""Work that is done once, by whoever asks first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from accelerators.process.forking import Guard

T = TypeVar("T")


class Once(Generic[T]):
    """Called like the work itself: others wait for whoever does it, and get the same result, or the same error. A forked process
    does what its parent had not ended."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._guard = Guard()
        self._results: list[T] = []
        self._error: Exception | None = None

    def __call__(self) -> T:
        with self._guard.lock:
            if self._error is not None:
                raise self._error.with_traceback(None)  # else it would grow with each call
            if not self._results:
                try:
                    self._results.append(self._work())
                except Exception as error:  # Ctrl-C is no result of the work
                    self._error = error
                    raise
            return self._results[0]
