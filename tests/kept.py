"""Kept lines, by the subjects with which they begin."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType


@cache
def kept(path: Path) -> dict[str, list[str]]:
    """The lines of a file by subject."""
    listed: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        listed.setdefault(line.partition(" | ")[0], []).append(line)
    return listed


def check_kept(module: ModuleType, kind: str) -> None:
    """Compares the lines of the subjects of this kind with those that the module wrote."""
    subjects = [subject for subject in module.SUBJECTS if subject.rpartition(" ")[0] == kind]
    assert subjects, kind
    for subject in subjects:
        meant = f"where this is meant: python -m {module.__name__}"
        assert module.lines(subject) == kept(module.KEPT).get(subject, []), meant
