"""Keeps what TVM prints and warns of off the screen, whichever threads compile, and nothing of what other threads print."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any

from partita.accelerators.process.forking import renewed_in_children


class Silence:
    """A context in which the threads that entered it print nothing. Warnings are left out as long as any thread is inside.

    contextlib.redirect_stdout and warnings.catch_warnings are no such thing: of two threads inside, the one that leaves last
    puts back what the other had put there, and the process is silent for good."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entered = threading.local()
        self._count = 0
        self._warnings: warnings.catch_warnings[Any] | None = None
        self._stream: _Muted | None = None
        renewed_in_children(self)

    def __enter__(self) -> None:
        self._entered.depth = self._depth() + 1
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._begin()

    def __exit__(self, *_: object) -> None:
        self._entered.depth -= 1
        with self._lock:
            self._count = max(0, self._count - 1)
            if not self._count:
                self._end()

    def is_here(self) -> bool:
        """Is this thread inside?"""
        return self._depth() > 0

    def renew(self) -> None:
        """In a forked process, which has none of the threads that were inside: it prints and warns again."""
        self._lock, self._count = threading.RLock(), 0
        self._end()

    def _depth(self) -> int:
        return getattr(self._entered, "depth", 0)

    def _begin(self) -> None:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        if sys.stdout is not None:  # A daemon has none.
            self._stream = sys.stdout = _Muted(sys.stdout, self)  # type: ignore[assignment]

    def _end(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None and sys.stdout is stream:
            sys.stdout = stream.stream
        held, self._warnings = self._warnings, None
        if held is not None:
            held.__exit__(None, None, None)


class _Muted:
    """A stream that drops what the silent threads write, and is the stream behind it in all else."""

    def __init__(self, stream: Any, silence: Silence) -> None:
        self.stream = stream
        self._silence = silence

    def write(self, text: str) -> int:
        """Write it, unless this thread is silent."""
        return len(text) if self._silence.is_here() else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
