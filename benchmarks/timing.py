"""Repeated times: how they are taken side by side, summed up, and compared."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

from partita.measuring.rounds import settle

WORTHLESS = 0.25
"""A ratio that is known no better than to this part of it is not shown: it does not tell a quarter faster from equal."""

LEAST = 0.02
"""No ratio is taken to be known better than this, however much its rounds agree."""

CONFIDENCE = 0.95
"""How probably the true median lies between the ends of `interval`."""

ALONE = 0.15
"""The spread that a single measurement is taken to have: it shows none of its own."""

TURN = 0.04
"""A contestant's turn is repeated calls for about so many seconds."""

WARM = 0.25
"""Seconds of calls before any counts; a call that is longer needs no other before it."""

Seconds = Callable[[int], list[float]]
"""Makes so many calls and says how long each took."""

Processes = Sequence[Sequence[float]]
"""Seconds of each round, process by process."""


def clock_for(threads: int) -> Callable[[], float]:
    """The seconds by which a call on so many threads is timed. On one thread it is the processor time of the whole process, which
    other programs do not lengthen by taking the core, and in which no thread that an engine starts beside it is forgotten."""
    return time.process_time if threads == 1 else time.perf_counter


@attrs.frozen
class Times:
    """The summary of repeated measurements of one call."""

    median: float
    """Seconds."""
    minimum: float
    """Seconds."""
    spread: float
    """Half the distance between the 10th and the 90th percentile of the rounds, as a part of the median."""
    rounds: int
    """The number of measurements."""
    processes: tuple[float, ...] = ()
    """The median of each fresh process: two modes would show here."""


def summary(processes: Processes) -> Times:
    """Median, minimum and spread of all rounds."""
    every = [taken for rounds in processes for taken in rounds]
    return Times(statistics.median(every), min(every), spread(every), len(every), medians(processes))


def medians(processes: Processes) -> tuple[float, ...]:
    """The median of each process that had a round."""
    return tuple(statistics.median(rounds) for rounds in processes if rounds)


def spread(values: Sequence[float]) -> float:
    """Half the distance between the 10th and the 90th percentile, as a part of the median."""
    if len(values) < 2:
        return ALONE
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return (tenths[-1] - tenths[0]) / 2 / statistics.median(values)


@attrs.frozen
class Ratio:
    """The time of one call over that of another."""

    value: float
    """The median over the rounds of what the two took in one round."""
    spread: float
    """How far the true value may be from the ratio, as a part of it: another run is expected to stay within it."""

    @property
    def is_inconclusive(self) -> bool:
        """Is it so uncertain that it says nothing?"""
        return self.spread > WORTHLESS

    def __str__(self) -> str:
        if self.is_inconclusive:
            return f"inconclusive (±{self.spread:.0%})"
        return f"{self.value:.2f} ±{self.value * self.spread:.2f}"


def ratio(ours: Processes, theirs: Processes) -> Ratio:
    """Round by round, so that what disturbs both in one round cancels out.

    Its spread is the largest of three distances: to the further end of the interval that holds the median of the rounds with 95 %
    probability; to that of the processes' medians, which differ by more than their rounds explain where a run has modes (of five
    or fewer: to the furthest of them); and 2 %. So it shrinks with more rounds, but not below what fresh processes differ by."""
    each = [[a / b for a, b in zip(mine, other)] for mine, other in zip(ours, theirs)]
    every = [value for rounds in each for value in rounds]
    middle = statistics.median(every)
    if len(every) == 1:
        return Ratio(middle, ALONE)
    ends = [*interval(every), *interval(medians(each))]
    return Ratio(middle, max(LEAST, *(abs(end / middle - 1) for end in ends)))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The ends between which the true median lies with 95 % probability, whatever the distribution (the sign test's interval).

    Of five values or fewer no ends are that sure; then it is the least and the largest."""
    ordered, count = sorted(values), len(values)
    allowed = (1 - CONFIDENCE) / 2 * 2**count
    skip, below = 0, 1  # `below`: how many of the 2**count ways leave at most `skip` values below the median
    while below + math.comb(count, skip + 1) <= allowed:
        skip += 1
        below += math.comb(count, skip)
    return ordered[skip], ordered[count - 1 - skip]


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of figures that are multiplied, not added."""
    return math.exp(statistics.fmean(map(math.log, values)))


def mean(ratios: Sequence[Ratio]) -> Ratio:
    """The geometric mean of ratios that were measured apart, so that their errors partly cancel out."""
    value = geometric_mean([one.value for one in ratios])
    return Ratio(value, math.sqrt(sum(one.spread**2 for one in ratios)) / len(ratios))


def clocked(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> Seconds:
    """A call as something to measure."""

    def seconds(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            start = clock()
            call()
            taken.append(clock() - start)
        return taken

    return seconds


def warmed(seconds: Seconds) -> float:
    """The least time of the first calls."""
    settle()
    taken = seconds(1)
    while sum(taken) < WARM and len(taken) < 1000:
        taken += seconds(1)
    return min(taken)


def interleaved(
    contestants: Mapping[str, Seconds], budget: float, fewest: int = 4, most: int = 60
) -> dict[str, list[float]]:
    """For each contestant its seconds in each round: all take their turn in every round, in changing order.

    A turn is one call to warm the caches and then a few that count, by their median; of long calls, just one. It ends after
    `budget` seconds, though not before `fewest` rounds, and after `most` in any case. The first calls are slower and do not
    count, but those that are long by themselves do, as a round: each contestant was called once before."""
    end = time.perf_counter() + budget
    first = {name: warmed(seconds) for name, seconds in contestants.items()}
    calls = {name: max(1, min(50, round(TURN / taken))) for name, taken in first.items()}
    all_long = all(taken > WARM for taken in first.values())
    seconds_of = {name: [taken] if all_long else [] for name, taken in first.items()}
    names = list(contestants)
    turn = int(all_long)
    while turn < fewest or (turn < most and time.perf_counter() < end):
        for i in range(len(names)):
            name = names[(i + turn) % len(names)]
            settle()
            if calls[name] > 1:
                contestants[name](1)
            seconds_of[name].append(statistics.median(contestants[name](calls[name])))
        turn += 1
    return seconds_of
