"""Repeated times: how they are taken side by side, summed up, and compared."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

WORTHLESS = 0.3
"""A ratio whose spread is more than this part of it is not shown."""

PAUSE = 0.005
"""Seconds between two contestants: the threads of the first stop spinning."""

ALONE = 0.15
"""The spread that a single measurement is taken to have: it shows none of its own."""

TURN = 0.02
"""A contestant's turn is repeated calls for about so many seconds."""

Seconds = Callable[[int], list[float]]
"""Makes so many calls and says how long each took."""


@attrs.frozen
class Times:
    """What repeated measurements of one thing came to."""

    median: float
    """Seconds."""
    minimum: float
    """Seconds."""
    spread: float
    """Half the distance between the 10th and the 90th percentile, as a part of the median."""
    rounds: int
    """How often it was measured."""


def summary(seconds: Sequence[float]) -> Times:
    """Median, minimum and spread."""
    return Times(statistics.median(seconds), min(seconds), spread(seconds), len(seconds))


def spread(values: Sequence[float]) -> float:
    """Half the distance between the 10th and the 90th percentile, as a part of the median."""
    if len(values) < 2:
        return ALONE
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return (tenths[-1] - tenths[0]) / 2 / statistics.median(values)


@attrs.frozen
class Ratio:
    """One thing's time over another's."""

    value: float
    """The median over the rounds of what the two took in one round."""
    spread: float
    """Half the distance between the 10th and the 90th percentile of that, as a part of it."""

    @property
    def is_worthless(self) -> bool:
        """Did it change so much from round to round that it says nothing?"""
        return self.spread > WORTHLESS

    def __str__(self) -> str:
        if self.is_worthless:
            return f"worthless (±{self.spread:.0%})"
        return f"{self.value:.2f} ±{self.value * self.spread:.2f}"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Round by round, so that what disturbs both in one round cancels out."""
    each = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(each), spread(each))


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(statistics.fmean(map(math.log, values)))


def clocked(call: Callable[[], object]) -> Seconds:
    """A call as something to measure."""

    def seconds(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
        return taken

    return seconds


def interleaved(
    contestants: Mapping[str, Seconds], budget: float, fewest: int = 4, most: int = 60
) -> dict[str, list[float]]:
    """For each contestant its seconds in each round: all take their turn in every round, in changing order.

    A turn is one call to warm the caches and then a few that count, by their median; of long calls, just one. It ends
    after `budget` seconds, though not before `fewest` rounds, and after `most` in any case."""
    first = {name: min(seconds(1)) for name, seconds in contestants.items()}
    calls = {name: max(1, min(50, round(TURN / taken))) for name, taken in first.items()}
    found: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    end = time.perf_counter() + budget
    turn = 0
    while turn < fewest or (turn < most and time.perf_counter() < end):
        for i in range(len(names)):
            name = names[(i + turn) % len(names)]
            time.sleep(PAUSE)
            if calls[name] > 1:
                contestants[name](1)
            found[name].append(statistics.median(contestants[name](calls[name])))
        turn += 1
    return found
