"""Output, warnings and errors of TVM in a form fit for users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.machine.silence import Silence
from partita.graph.errors import PartitaError

Failure = Exception
"""Exceptions that TVM raises: any."""


_silence = Silence()


def quiet() -> Silence:
    """A context in which TVM's output and warnings do not reach the user's screen."""
    return _silence


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
