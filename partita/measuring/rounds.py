"""The measurement itself.

Contenders take turns, in changing order. In each round each one runs once unmeasured and then several times measured, so that
other load of the machine affects all alike."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import numpy as np

from partita.accelerators import AcceleratorError, CompiledModel, RunError, compile
from partita.accelerators.interface.device_list import DEFAULT
from partita.accelerators.interface.settings import with_key
from partita.compare import Difference, compare
from partita.graph.errors import PartitaError
from partita.graph.formatting import counted
from partita.graph.graph import Graph

Call = Callable[[Mapping[str, Any]], Sequence[Any]]
"""Function from arrays by the names of the model's inputs to the outputs in order."""

Rival = str | CompiledModel | Call
"""Devices for the same graph, a compiled model, or a function."""


@attrs.define(slots=True, eq=False)
class Contender:
    """A contender, and its measurements."""

    name: str
    """The devices, as the user named them."""
    call: Call
    """Function that runs it."""
    model: CompiledModel | None
    """The compiled model; None for a function."""
    compile_seconds: float | None = None
    """Seconds of compiling; few if the model was in the cache."""
    outputs: Sequence[Difference] = ()
    """Comparison of each output with that of the first contender."""
    rounds: list[list[float]] = attrs.field(factory=list)
    """Milliseconds of each run, by round."""
    rates: list[float] = attrs.field(factory=list)
    """Calls per second of all streams together, by round."""


def contender(name: str | None, subject: Graph | Rival, config: Mapping[str, Any]) -> Contender:
    """A graph compiled for the devices, a compiled model, or a function, ready to be measured."""
    if isinstance(subject, Graph):
        start = time.perf_counter()
        model = compile(subject, name, config).wait()  # with START, measure the requested devices
        return Contender(name or DEFAULT, model, model, time.perf_counter() - start)
    if isinstance(subject, CompiledModel):
        subject.ready.exception()  # if its devices cannot compile it, it continues with others
        return Contender(name or _devices_of(subject), subject, subject)
    assert not isinstance(subject, str)
    return Contender(str(name), subject, None)


def named(rivals: Rival | Sequence[Rival] | Mapping[str, Rival]) -> dict[str, Rival]:
    """The rivals by name; devices are named as they are written, functions by their own name."""
    if isinstance(rivals, str) or callable(rivals):
        rivals = [rivals]
    if not isinstance(rivals, Iterable):
        raise AcceleratorError(f"they are a sequence, or a dictionary by name, not {rivals!r:.80}", where="bench, option vs")
    named = dict(rivals) if isinstance(rivals, Mapping) else {_name_of(rival): rival for rival in rivals}
    for name, rival in named.items():
        if not isinstance(rival, str) and not callable(rival):
            cause = f"it is devices, a compiled model or a function, not {rival!r:.80}"
            raise AcceleratorError(cause, where=f"bench, rival {name!r}")
    return named


def _name_of(rival: Rival) -> str:
    if isinstance(rival, str):
        return rival
    return _devices_of(rival) if isinstance(rival, CompiledModel) else getattr(rival, "__name__", repr(rival))


def _devices_of(model: CompiledModel) -> str:
    devices = model.properties.devices
    return ("HETERO:" if len(devices) > 1 else "") + ",".join(devices)


def compiled(name: str, devices: str, graph: Graph, same: Mapping[str, Any]) -> Contender:
    """The graph compiled for a rival's devices, with the settings that all have in common."""
    rival = contender(devices, graph, shared({}, devices, same))
    rival.name = name
    return rival


def shared(config: Mapping[str, Any], devices: str | None, same: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the settings that all have in common, except those without a value."""
    extended = dict(config)
    for key, value in same.items():
        if value is not None:
            extended = with_key(extended, devices, key, value)
    return extended


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


PAUSE = 0.004
"""Sampling interval in seconds; it is repeated until the process uses hardly any processor time."""

RESTLESS = 0.5
"""Maximum seconds to wait for threads that do not stop."""


def settle() -> None:
    """Waits until this process's threads sleep. Some engines' threads spin after a call and slow down the next engine."""
    end = time.perf_counter() + RESTLESS
    used = math.inf
    while used > PAUSE / 4 and time.perf_counter() < end:
        before = time.process_time()
        time.sleep(PAUSE)
        used = time.process_time() - before
