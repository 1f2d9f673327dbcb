"""The measurement itself.

Contenders take turns, in changing order. In each round each one runs once unmeasured and then several times measured, so that
other load of the machine affects all alike."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import numpy as np

from partita.accelerators import RunError
from partita.accelerators.process.idle_wait import settle
from partita.compare import compare
from partita.graph.errors import PartitaError
from partita.graph.formatting import counted
from partita.measuring.contender import Call, Contender

BLOCK_SECONDS = 0.03
"""Seconds that each contender runs in a round; once if one run takes longer."""

STREAM_SECONDS = 0.2
"""Seconds that several streams run together in a round; four calls of each if these take longer."""

ROUNDS = 3
"""Minimum number of rounds if no number of iterations is given."""


@attrs.frozen(slots=True)
class Effort:
    """Duration and kind of a measurement."""

    seconds: float = 5.0
    """Approximate seconds of the measurement, unless `iterations` is given."""
    iterations: int | None = None
    """Exact number of measured runs of each contender."""
    warmup: int = 1
    """Number of runs of each contender before the measurement."""
    streams: int = 1
    """Number of threads that call the model at once for throughput."""


def measure(contenders: Sequence[Contender], inputs: Mapping[str, Any], effort: Effort, precision: str = "f32") -> None:
    """Compare the outputs with the first contender's, then fill `rounds` and `rates`."""
    expected, graph = contenders[0].call(inputs), contenders[0].model
    for one in contenders[1:]:
        assert graph is not None
        one.outputs = compare(graph.graph, _outputs(one, inputs, len(expected)), list(expected), precision=precision)
    for one in contenders:
        for _ in range(effort.warmup):
            one.call(inputs)
    end = time.perf_counter() + effort.seconds
    while _goes_on(contenders[0], effort, end):
        shift = len(contenders[0].rounds) % len(contenders)
        for one in [*contenders[shift:], *contenders[:shift]]:
            settle()
            left = None if effort.iterations is None else effort.iterations - sum(map(len, one.rounds))
            one.rounds.append(_block(one.call, inputs, left))
            if effort.streams > 1:
                one.rates.append(_rate(one.call, inputs, effort.streams, statistics.median(one.rounds[-1]) / 1e3))


def _outputs(one: Contender, inputs: Mapping[str, Any], count: int) -> list[Any]:
    """Outputs of a contender; an error of a user's function is reported under its name."""
    where = f"bench, rival {one.name!r}"
    try:
        outputs = one.call(inputs)
    except PartitaError:
        raise
    except Exception as error:
        raise RunError(f"it raises {type(error).__name__}: {error}", where=where) from error
    listed = [outputs] if isinstance(outputs, np.ndarray) and count == 1 else list(outputs)
    if len(listed) != count:
        raise RunError(f"it gives {counted(len(listed), 'output')}, and the model has {count}", where=where)
    return listed


def _goes_on(first: Contender, effort: Effort, end: float) -> bool:
    """True until the first contender has enough runs or rounds; all have the same number."""
    if effort.iterations is not None:
        return sum(map(len, first.rounds)) < effort.iterations
    return time.perf_counter() < end or len(first.rounds) < ROUNDS


def _block(call: Call, inputs: Mapping[str, Any], left: int | None) -> list[float]:
    """Milliseconds of consecutive runs, after one that is not measured."""
    call(inputs)
    milliseconds: list[float] = []
    last = time.perf_counter()
    stop = last + BLOCK_SECONDS
    while last < stop and (left is None or len(milliseconds) < left):
        call(inputs)
        now = time.perf_counter()
        milliseconds.append(1e3 * (now - last))
        last = now
    return milliseconds


def _rate(call: Call, inputs: Mapping[str, Any], streams: int, seconds: float) -> float:
    """Calls per second of several concurrent threads."""
    together = threading.Barrier(streams + 1)
    wanted = max(STREAM_SECONDS, 4 * streams * seconds)
    stop = 0.0

    def calls() -> int:
        together.wait()
        count = 0
        while not count or time.perf_counter() < stop:
            call(inputs)
            count += 1
        return count

    with ThreadPoolExecutor(streams, "partita-bench") as threads:
        running = [threads.submit(calls) for _ in range(streams)]
        start = time.perf_counter()
        stop = start + wanted
        together.wait()
        total = sum(one.result() for one in running)
        return total / (time.perf_counter() - start)
