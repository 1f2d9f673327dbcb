"""The memory available to this process: that of the machine, and of its control groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from partita.accelerators.process.groups import group_folders

_MACHINE = Path("/proc/meminfo")

_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""A group's files with its limit and usage, in either version of the system's interface."""


def free_memory() -> int | None:
    """Available memory in bytes; None if the system does not report it."""
    try:
        left = [*_of_machine(), *_of_groups()]
    except (OSError, ValueError):
        return None
    return max(0, min(left)) if left else None


def _of_machine() -> Iterator[int]:
    for line in _MACHINE.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) << 10


def _of_groups() -> Iterator[int]:
    """The remaining memory of each group. Inactive file pages count as free, since the system can reclaim them."""
    for folder in group_folders("memory"):
        for limit, used in _FILES:
            if (folder / limit).is_file() and (text := (folder / limit).read_text().strip()) != "max":
                yield int(text) - int((folder / used).read_text()) + _idle_files(folder)


def _idle_files(folder: Path) -> int:
    lines = (folder / "memory.stat").read_text().splitlines()
    counts = dict(line.split() for line in lines)
    return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
