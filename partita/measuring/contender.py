"""Contenders of a measurement: devices that run a graph, compiled models, and functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators import AcceleratorError, CompiledModel, compile
from partita.accelerators.interface.device_list import DEFAULT
from partita.compare import Difference
from partita.device_keys import with_key
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
