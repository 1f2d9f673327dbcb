"""Suppresses TVM's output and warnings in all compiling threads, without suppressing output of other threads."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any

from partita.accelerators.process.forking import renewed_in_children


class Silence:
    """A context in which the threads that entered it print nothing. Warnings are suppressed while any thread is inside.

    contextlib.redirect_stdout and warnings.catch_warnings cannot do this: if two threads overlap, the one that leaves last
    restores what the other had set, and the process stays silent."""

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
        """True if this thread is inside."""
        return self._depth() > 0

    def renew(self) -> None:
        """Reset in a forked process, which has none of the threads that were inside: it prints and warns again."""
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
    """A stream that drops the output of silent threads and otherwise delegates to the real stream."""

    def __init__(self, stream: Any, silence: Silence) -> None:
        self.stream = stream
        self._silence = silence

    def write(self, text: str) -> int:
        """Write the text, unless this thread is silent."""
        return len(text) if self._silence.is_here() else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
