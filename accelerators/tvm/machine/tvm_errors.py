"""Output, warnings and errors of TVM in a form fit for users."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from partita.accelerators.errors import CompileError
from partita.accelerators.process.forking import renewed_in_children
from partita.graph.errors import PartitaError

Failure = Exception
"""Exceptions that TVM raises: any."""


@contextlib.contextmanager
def refused(stage: str) -> Iterator[None]:
    """Turns any exception of TVM's into a CompileError of one line."""
    try:
        yield
    except PartitaError:
        raise
    except Failure as error:
        raise CompileError(f"TVM's {stage} refuses it: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The line of TVM's message that states the problem."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("File ", "Traceback", "Stack trace", "[", "---"))]
    return f"{type(error).__name__}: {(telling or lines or ['no message'])[0]}"[:240]


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


_silence = Silence()


def quiet() -> Silence:
    """A context in which TVM's output and warnings do not reach the user's screen."""
    return _silence
