"""A child process that answers lines of JSON, and is replaced when it crashes or hangs."""

from __future__ import annotations

import faulthandler
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

Tell = Callable[[Mapping[str, Any]], None]
"""Sends a line before the last."""


def serve(answer: Callable[[dict[str, Any], Tell], Mapping[str, Any]]) -> None:
    """In the child: answer each line until the input ends. What libraries print goes to the error stream."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(note: Mapping[str, Any]) -> None:
        print(json.dumps(note), file=answers)

    for line in sys.stdin:
        tell(answer(json.loads(line), tell))


@attrs.frozen
class Answer:
    """What came back."""

    notes: tuple[Mapping[str, Any], ...]
    """The lines before the last."""
    last: Mapping[str, Any] | None
    """The last line; None if the child came to an end before it."""
    end: str = ""
    """Then: "crashed" or "hung"."""
    printed: str = ""
    """The last of what it printed."""


class Child:
    """Starts the process with the first question, and again after a crash, or after so many questions (libraries leak)."""

    def __init__(
        self, module: str, last_key: str, arguments: Sequence[str] = (), renewed_after: int = 400
    ) -> None:
        self._command = [sys.executable, "-X", "faulthandler", "-m", module, *arguments]
        self._last_key = last_key
        self._renewed_after = renewed_after
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._rest = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the child)

    def ask(self, question: Mapping[str, Any], seconds: float) -> Answer:
        """The answer, if it comes in time."""
        if self._process is None or self._asked >= self._renewed_after:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        self._asked += 1
        notes: list[Mapping[str, Any]] = []
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._ended("crashed", notes)
        until = time.monotonic() + seconds
        while True:
            line = self._line(until)
            if line is None:
                return self._ended("hung" if time.monotonic() >= until else "crashed", notes)
            said = json.loads(line)
            if self._last_key in said:
                return Answer(tuple(notes), said)
            notes.append(said)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *rest: object) -> None:
        self.close()
        self._errors.close()

    def _start(self) -> None:
        self.close()
        self._asked, self._rest = 0, b""
        self._errors.seek(0)
        self._errors.truncate()
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment
        )

    def _line(self, until: float) -> bytes | None:
        """The next line; None where there is none in time, or none any more."""
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
            more = os.read(stream, 1 << 16) if ready else b""
            if not more:
                return None
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return line

    def _ended(self, how: str, notes: list[Mapping[str, Any]]) -> Answer:
        self.close()
        self._errors.seek(0)
        printed = self._errors.read().decode("utf-8", "replace")
        return Answer(tuple(notes), None, how, printed[-3000:])
