"""Processes that are measured, watched, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.machine import memory_bytes
from benchmarks.venvs import ROOT

SHARE = 0.7
"""The part of the machine's memory that one process may take."""


class CutOff(Exception):
    """A process was ended, and why."""


class Failed(Exception):
    """A process ended by itself without a result: what it said last."""

    def __init__(self, text: str, code: int) -> None:
        said = [line.strip() for line in text.strip().splitlines() if line.strip()]
        super().__init__(said[-1][:300] if said else f"it ended with code {code}")
        self.code = code


def module_command(module: str, arguments: Sequence[str], python: Path | str = sys.executable) -> list[str]:
    """The command that runs a module of this repository."""
    return [str(python), "-m", module, *arguments]


def run_json(command: Sequence[str], seconds: float, environment: dict[str, str] | None = None) -> Any:
    """The last line of JSON that the command prints. Raises CutOff after `seconds`, or if the command takes too much
    memory.

    Raises Failed if it ends by itself with an error. Whatever happens, none of its processes and temporary files stay.
    """
    (answer,) = run_together([command], seconds, environment)
    if isinstance(answer, Exception):
        raise answer
    return answer


def run_together(
    commands: Sequence[Sequence[str]],
    seconds: float,
    environment: dict[str, str] | None = None,
    given: Sequence[int] = (),
) -> list[Any]:
    """The same for commands that run at the same time; what failed has its exception in the list.

    Each process gets the file descriptor in `given` at its own position; here they are closed."""
    with contextlib.ExitStack() as stack:
        try:
            gifts = [given[i : i + 1] for i in range(len(commands))]
            started = [stack.enter_context(_started(each, environment, gift)) for each, gift in zip(commands, gifts)]
        finally:
            for descriptor in given:
                os.close(descriptor)
        cut = watched([process for process, _, _ in started], seconds)
        return [cut.get(process) or _said(process, out, errors) for process, out, errors in started]


Started = tuple[subprocess.Popen[bytes], IO[str], IO[str]]
"""A process, what it prints, and its errors."""


@contextlib.contextmanager
def _started(command: Sequence[str], environment: dict[str, str] | None, given: Sequence[int]) -> Iterator[Started]:
    """A context in which the process runs; at its end the process, its children and its temporary files are gone."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as errors,
        tempfile.TemporaryDirectory(prefix="partita-bench-") as folder,
    ):
        variables = {**(environment or os.environ), "TMPDIR": folder}
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=errors, stdin=subprocess.DEVNULL, env=variables, start_new_session=True,
            pass_fds=given,
        )
        try:
            yield process, out, errors
        finally:
            end_group(process)


def _said(process: subprocess.Popen[Any], out: IO[str], errors: IO[str]) -> Any:
    """The last line of one that has ended, or its failure."""
    out.seek(0)
    errors.seek(0)
    if process.returncode:
        return Failed(errors.read(), process.returncode)
    return json.loads(out.read().strip().splitlines()[-1])


def watched(processes: Sequence[subprocess.Popen[Any]], seconds: float) -> dict[subprocess.Popen[Any], CutOff]:
    """Wait for all to end; those that were too long or too large are ended, and returned."""
    limit, allowed = time.monotonic() + seconds, SHARE * memory_bytes()
    cut: dict[subprocess.Popen[Any], CutOff] = {}
    while running := [process for process in processes if process.poll() is None]:
        for process in running:
            if time.monotonic() > limit:
                cut[process] = CutOff(f"over {seconds:.0f} s")
            elif resident(process.pid) > allowed:
                cut[process] = CutOff(f"over {allowed / 2**30:.0f} GiB")
            else:
                continue
            end_group(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running[0].wait(0.1)
    return cut


def resident(process: int) -> int:
    """The bytes that a process has in memory; 0 where the system does not say."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * 4096


def end_group(process: subprocess.Popen[Any]) -> None:
    """End it, and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end(process: subprocess.Popen[Any]) -> None:
    """End the process for certain."""
    if process.poll() is None:
        process.kill()
    process.wait()
