"""The Linux control groups of this process, which limit its use of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def group_folders(controller: str) -> Iterator[Path]:
    """The folders of the groups that may limit the controller's resource, innermost first; OSError if the system has no
    groups."""
    for line in _OWN.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        base = _ROOT / controller if controller in controllers.split(",") else _ROOT
        if controllers and base == _ROOT:
            continue
        group = base / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(_ROOT))
