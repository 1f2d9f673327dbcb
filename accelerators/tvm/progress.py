"""Progress of a compilation, reported to a callback or on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from partita.accelerators.process.descriptors import at_a_terminal


class Progress:
    """Counts the kernels that are being compiled."""

    def __init__(self, device: str, total: int, callback: Callable[[int, int, str], Any] | None) -> None:
        self.device = device
        self.total = total
        self.callback = callback
        """Called with the number of kernels done, their total number, and the name of the one that starts."""
        self._seen: set[str] = set()
        self._shown = callback is None and total > 1 and at_a_terminal()

    def step(self, key: str, name: str) -> None:
        """Report that a kernel of this structure starts; known structures take no time and are not counted."""
        if key in self._seen:
            return
        if self.callback is not None:
            self.callback(len(self._seen), self.total, name)
        self._seen.add(key)
        if self._shown:
            text = f"{self.device}: kernel {len(self._seen)} of {self.total}: {name:.40s}"
            print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
