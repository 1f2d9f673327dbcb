"""What a long run says on stderr while it goes on."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable


class Progress:
    """Counts the steps and estimates how long the rest will take."""

    def __init__(self, steps: int, what: str) -> None:
        self.steps, self.what, self.done, self.began = steps, what, 0, time.monotonic()

    def step(self, name: str) -> None:
        """Say that a step begins."""
        taken = time.monotonic() - self.began
        left = f", about {_span(taken / self.done * (self.steps - self.done))} left" if self.done else ""
        say(f"{self.what} {self.done + 1}/{self.steps}: {name} ({_span(taken)} so far{left})")
        self.done += 1


def run(main: Callable[[], None]) -> None:
    """Run a benchmark's command line; Ctrl-C or a request to end stops it with one line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        say("stopped; nothing of this benchmark was written")
        sys.exit(130)


def say(text: str) -> None:
    """Print one line."""
    print(f"-- {text}", file=sys.stderr, flush=True)


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
