"""Counts the cores that this process may use, given its CPU affinity and its container's quota. Of two threads of a core only one
counts, because both share the units that multiply."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """The number of cores that this process may use, at least one."""
    if hasattr(os, "sched_getaffinity"):
        allowed = frozenset(os.sched_getaffinity(0))
        return max(1, min(_physical(allowed), _quota() or len(allowed)))
    return _reported() if sys.platform == "darwin" else max(1, (os.cpu_count() or 1))


def default_threads() -> int:
    """Default number of threads of kernels: TVM_NUM_THREADS or OMP_NUM_THREADS, else all cores."""
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        given = os.environ.get(name, "").split(",")[0].strip()
        if given.isdigit() and int(given) > 0:
            return int(given)
    return usable_cores()


def all_but_one_core() -> frozenset[int]:
    """The processors that this process may run on, without those of its first core; empty if it has a single core."""
    allowed = frozenset(os.sched_getaffinity(0))
    first = _core(min(allowed))
    return frozenset(number for number in allowed if _core(number) != first)


@cache
def _physical(allowed: frozenset[int]) -> int:
    """The number of cores that these processors belong to."""
    return len({_core(number) for number in allowed})


@cache
def _core(number: int) -> str:
    """The processors of this one's core, as the system lists them."""
    try:
        return (_CPUS / f"cpu{number}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(number)


@cache
def _quota() -> int | None:
    """The container's CPU quota in whole cores; None if there is no limit."""
    try:
        limits = [limit for folder in group_folders("cpu") if (limit := _limit(folder))]
    except OSError:
        return None
    return max(1, round(min(limits))) if limits else None


def _limit(folder: Path) -> float | None:
    """The quota of one group, from either version of the system's interface."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        return None if quota == "max" or int(quota) <= 0 else int(quota) / int(period)
    return None


@cache
def _reported() -> int:
    """The number of fast cores of a Mac."""
    for name in ("hw.perflevel0.physicalcpu", "hw.physicalcpu"):
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip().isdigit():
            return max(1, int(done.stdout))
    return max(1, os.cpu_count() or 1)


def group_folders(controller: str) -> Iterator[Path]:
    """The folders of this process's Linux control groups that may limit the controller's resource, innermost first; OSError if
    the system has no groups."""
    for line in _OWN.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        base = _ROOT / controller if controller in controllers.split(",") else _ROOT
        if controllers and base == _ROOT:
            continue
        group = base / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(_ROOT))


@cache
def processor() -> str:
    """The manufacturer's name of the processor: two of one instruction set may need different tiles."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
