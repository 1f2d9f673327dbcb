"""What an attack counts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs


@attrs.define
class Figures:
    """The counts of one attack; each that is not stated stays 0."""

    tried: int = 0
    """How many inputs (models, files, folders) were tried."""
    differences: int = 0
    """How many answers were wrong."""
    crashes: int = 0
    """How many processes ended by a signal that the attack did not send."""
    hangs: int = 0
    """How often something took longer than its time limit."""
    kills: int = 0
    """How many processes the attack killed."""
    calls: int = 0
    """How many calls of models returned."""
    leaks: int = 0
    """How often memory, threads, files or processes were left over."""
    failures: list[str] = attrs.field(factory=list)
    """What went wrong, a line each, with what repeats it."""

    def failed(self, kind: str, line: str) -> None:
        """Count one more of "differences", "crashes", "hangs" or "leaks", and say which."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.failures.append(f"{kind}: {line}")

    @property
    def clean(self) -> bool:
        """Did nothing go wrong?"""
        return not (self.failures or self.differences or self.crashes or self.hangs or self.leaks)


COLUMNS = ("tried", "differences", "crashes", "hangs", "kills", "calls", "leaks")
"""The counts in the order in which they are printed."""


def rounds_for(seconds: float, at_least: int = 1) -> Iterator[int]:
    """0, 1, 2, ... until the seconds are over, and so many in any case."""
    end, number = time.monotonic() + seconds, 0
    while number < at_least or time.monotonic() < end:
        yield number
        number += 1
