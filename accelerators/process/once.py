"""Work that is done once, by the first caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from partita.accelerators.process.forking import Guard

T = TypeVar("T")


class Once(Generic[T]):
    """Called with the work: concurrent callers wait, and get the same result or error. A forked process redoes work that its
    parent had not finished. The work is not kept, since it may reference the owner of this."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._results: list[T] = []
        self._error: Exception | None = None

    def __call__(self, work: Callable[[], T]) -> T:
        with self._guard.lock:
            if self._error is not None:
                raise self._error.with_traceback(None)  # else the traceback would grow with each call
            if not self._results:
                try:
                    self._results.append(work())
                except Exception as error:  # Ctrl-C is not a result of the work
                    self._error = error
                    raise
            return self._results[0]
