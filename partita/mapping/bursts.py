"""How many inputs a worker is given at once: as many as it answers in a moment, so that they share the price of the way to it.

To hand an input to another process and to fetch its result costs as much as the call of a small model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

Array = np.ndarray[Any, Any]

MOMENT = 0.01
"""Seconds of a worker's time that are given to it at once."""

MOST = 64
"""Inputs that are given at once, however fast the model is."""

BYTES = 2**20
"""Bytes of inputs and outputs that travel at once, if that is more than one input."""

READING = 0.005
"""Seconds for which inputs are read before those that are there are given."""


@attrs.define
class Burst:
    """The number of inputs that are given at once, as far as it is known by now."""

    size: int = 1

    def learn(self, count: int, seconds: float, size: int) -> None:
        """Note that so many inputs took a worker so long, and that so many bytes travelled."""
        fitting = min(MOST, MOMENT * count / max(seconds, 1e-9), BYTES * count / max(size, 1))
        self.size = max(1, min(2 * self.size, int(fitting)))


def read_ahead(inputs: Iterator[Mapping[str, Array]], count: int) -> tuple[list[Mapping[str, Array]], BaseException | None]:
    """At most so many of the inputs, fewer where reading them takes long, and what ended the reading: StopIteration where there
    are no more."""
    end = time.monotonic() + READING
    taken: list[Mapping[str, Array]] = []
    try:
        while not taken or (len(taken) < count and time.monotonic() < end):
            taken.append(next(inputs))
    except BaseException as error:  # noqa: BLE001  it is raised where the results before it were fetched
        return taken, error
    return taken, None


def bytes_of(*calls: Mapping[str, Array]) -> int:
    """The bytes of all these arrays; text counts as what points to it, and a list as nothing."""
    return sum(getattr(array, "nbytes", 0) for arrays in calls for array in arrays.values())
