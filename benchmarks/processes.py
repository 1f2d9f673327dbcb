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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    """How a module of this repository is run."""
    return [str(python), "-m", module, *arguments]


def run_json(command: Sequence[str], seconds: float, environment: dict[str, str] | None = None) -> Any:
    """What the command prints as its last line of JSON. CutOff after so many seconds, or where it takes too much memory.

    Failed where it ends by itself with an error. Whatever happens, of its own processes and temporary files nothing stays."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as errors,
        tempfile.TemporaryDirectory(prefix="partita-bench-") as folder,
    ):
        variables = {**(environment or os.environ), "TMPDIR": folder}
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=errors, stdin=subprocess.DEVNULL, env=variables, start_new_session=True
        )
        try:
            code = watched(process, seconds)
        finally:
            end_group(process)
        out.seek(0)
        errors.seek(0)
        lines = out.read().strip().splitlines()
        if code:
            raise Failed(errors.read(), code)
    return json.loads(lines[-1])


def watched(process: subprocess.Popen[Any], seconds: float) -> int:
    """Its exit code; CutOff if it is too long or too large."""
    limit, allowed = time.monotonic() + seconds, SHARE * memory_bytes()
    while True:
        try:
            return process.wait(0.1)
        except subprocess.TimeoutExpired:
            pass
        if time.monotonic() > limit:
            raise CutOff(f"over {seconds:.0f} s")
        if resident(process.pid) > allowed:
            raise CutOff(f"over {allowed / 2**30:.0f} GiB")


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
    """End it for certain."""
    if process.poll() is None:
        process.kill()
    process.wait()
