"""The circumstances of a measurement: processor, memory, versions, commit, and what else ran."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.venvs import MXNET, ROOT, TORCH

SHOWN = ("apache-tvm", "onnxruntime", "onnxruntime-gpu", "openvino", "torch", "transformers", "mxnet", "numpy", "onnx")
"""Distributions whose versions are recorded where they are installed."""


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The name that the processor's maker gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        line = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        if line:
            return line[1].strip()
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    """The bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine_name() -> str:
    """A short name of the machine for a file's name: LLVM's name of the processor, what it lacks, and the number of cores."""
    from partita.accelerators.tvm.machine.machine import hidden_features, host_cpu

    without = "-without-avx512" if "avx512f" in hidden_features() else ""
    return f"{host_cpu()}{without}-{usable_cores()}"


def versions() -> dict[str, str]:
    """The versions of Python and of the packages in `SHOWN` that are installed here or in the environments of peers."""
    shown = {"python": platform.python_version()}
    elsewhere = [str(path) for peer in (TORCH, MXNET) for path in peer.folder.glob("lib/python*/site-packages")]
    for name in SHOWN:
        installed = [*importlib.metadata.distributions(name=name), *importlib.metadata.distributions(name=name, path=elsewhere)]
        if installed:
            shown[name] = installed[0].version
    return shown


def commit() -> str:
    """The commit that is checked out, with a plus where the tree differs from it; empty outside a repository."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def description() -> dict[str, Any]:
    """The whole description of the machine and its software."""
    return {
        "processor": processor(),
        "cores": usable_cores(),
        "memory_gib": round(memory_bytes() / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions(),
    }


class OtherLoad:
    """How many cores other programs kept busy: the machine's work without that of this process and of those that it
    started.
    """

    def __init__(self) -> None:
        self.start = self._now()

    def cores(self) -> float | None:
        """The cores that were busy since this object was made; None where the system does not say."""
        if self.start is None or (now := self._now()) is None:
            return None
        clock, busy, own = (b - a for a, b in zip(self.start, now, strict=True))
        return round(max(0.0, busy - own) / clock, 2) if clock else None

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        """Seconds on the clock, of all processors' work (what other guests of the host take counts too), and of our own."""
        source = Path("/proc/stat")
        if not source.exists():
            return None
        user, nice, system, _, _, irq, softirq, steal = map(int, source.read_text().split(maxsplit=9)[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), busy, family_seconds()


def family_seconds() -> float:
    """The processor time of this process and all that it started, those that ended too."""
    parents, ticks = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process ended just now
            fields = file.read_text().rpartition(")")[2].split()
            parents[int(file.parent.name)] = int(fields[1])
            ticks[int(file.parent.name)] = sum(map(int, fields[11:15]))
    family, later = {os.getpid()}, parents.keys() - {os.getpid()}
    while children := {process for process in later if parents[process] in family}:
        family |= children
        later = later - children
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")
