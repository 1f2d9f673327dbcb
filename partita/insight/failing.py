"""Values of `--fails`: a command, or a Python function, that decides whether a model still fails."""

from __future__ import annotations

import os
import runpy
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from partita.accelerators import AcceleratorError
from partita.graph.graph import Graph
from partita.insight.reducing import Fails, write_candidate

MODEL, INPUTS = "{model}", "{inputs}"
"""Placeholders for the two files in a command."""

SECONDS = 600.0
"""Default time limit of a command in seconds."""

HUNG = -1000
"""Status of a command that exceeds its time limit; no process ends with it."""


class Command:
    """Runs a command on each candidate. The failure is its exit status for the whole model, which is not 0."""

    def __init__(self, line: str, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.words = shlex.split(line)
        self.status: int | None = None
        if MODEL not in line:
            self.words.append(MODEL)
        if INPUTS not in line:
            self.words.append(INPUTS)

    def __call__(self, graph: Graph, inputs: Mapping[str, Any]) -> bool:
        """True if it ends with the same status as for the first graph."""
        with tempfile.TemporaryDirectory(prefix="partita-reduce-") as name:
            folder = Path(name)
            write_candidate(graph, inputs, folder)
            files = {MODEL: str(folder / "model.onnx"), INPUTS: str(folder / "inputs.npz")}
            status = self._status([_filled(word, files) for word in self.words])
        if self.status is None:
            self.status = status
        return status == self.status != 0

    def _status(self, words: list[str]) -> int:
        """Exit status of the command. It runs in a process group of its own, all of which is killed at the end."""
        quiet = subprocess.DEVNULL
        try:
            process = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        except OSError as error:
            raise AcceleratorError(
                f"the command cannot be run: {error.strerror or error}",
                where=f"--fails {shlex.join(words[:1])}",
                remedy="Name a program, or a function as FILE.py:NAME",
            ) from error
        try:
            return process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            return HUNG
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _filled(word: str, files: Mapping[str, str]) -> str:
    for mark, path in files.items():
        word = word.replace(mark, path)
    return word


def read_fails(text: str, seconds: float | None = None) -> Fails:
    """The function FILE.py:NAME, or else the command."""
    path, colon, name = text.rpartition(":")
    if not (colon and path.endswith(".py") and name.isidentifier()):
        return Command(text, seconds or SECONDS)
    if not Path(path).is_file():
        raise AcceleratorError("there is no such file", where=f"--fails {text}", remedy="Write FILE.py:NAME, or a command")
    function = runpy.run_path(path).get(name)
    if not callable(function):
        raise AcceleratorError(f"it defines no function {name!r}", where=path, remedy="Define NAME(graph, inputs) -> bool")
    fails: Fails = function
    return fails
