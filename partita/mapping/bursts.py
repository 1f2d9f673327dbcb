"""Number of inputs that a worker gets at once: as many as it computes in a moment, so that they share the cost of the transfer.

Sending an input to another process and fetching its result costs as much as the call of a small model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

Array = np.ndarray[Any, Any]

MOMENT = 0.01
"""Seconds of work that a worker gets at once."""

MOST = 64
"""Maximum number of inputs sent at once, however fast the model is."""

BYTES = 2**20
"""Maximum bytes of inputs and outputs sent at once, if that is more than one input."""

READING = 0.005
"""Seconds of reading inputs before those already read are sent."""


@attrs.define
class Burst:
    """Current estimate of the best number of inputs to send at once."""

    size: int = 1

    def learn(self, count: int, seconds: float, size: int) -> None:
        """Record that this many inputs took a worker this many seconds, and that this many bytes were sent."""
        fitting = min(MOST, MOMENT * count / max(seconds, 1e-9), BYTES * count / max(size, 1))
        self.size = max(1, min(2 * self.size, int(fitting)))


def read_ahead(inputs: Iterator[Mapping[str, Array]], count: int) -> tuple[list[Mapping[str, Array]], BaseException | None]:
    """At most `count` of the inputs, fewer if reading takes long, and the exception that ended the reading: StopIteration at the
    end."""
    end = time.monotonic() + READING
    taken: list[Mapping[str, Array]] = []
    try:
        while not taken or (len(taken) < count and time.monotonic() < end):
            taken.append(next(inputs))
    except BaseException as error:  # noqa: BLE001  raised after the results before it were fetched
        return taken, error
    return taken, None


def bytes_of(*calls: Mapping[str, Array]) -> int:
    """Bytes of all these arrays; text counts as its pointers, and a list as nothing."""
    return sum(getattr(array, "nbytes", 0) for arrays in calls for array in arrays.values())
