"""-v: messages of the loggers under `partita`, on stderr."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from partita.cli.screen import Screen

LEVELS = (logging.INFO, logging.DEBUG)
"""Minimum levels shown with -v, and with -vv."""


class _OnScreen(logging.Handler):
    """Prints each record as a line; the screen replaces control characters in a model's names."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        self.screen.note(f"{record.name}: {record.getMessage()}")


@contextmanager
def told(verbose: int, screen: Screen) -> Iterator[None]:
    """Inside, messages of the loggers are shown; nothing without -v."""
    if not verbose:
        yield
        return
    root, handler = logging.getLogger("partita"), _OnScreen(screen)
    before = root.level
    root.addHandler(handler)
    root.setLevel(LEVELS[min(verbose, len(LEVELS)) - 1])
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
