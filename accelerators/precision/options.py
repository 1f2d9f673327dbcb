"""Checks the arguments of `choose_precision`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.inputs import InputChecker
from partita.accelerators.compiling import compile as compile_model
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.device_list import Absent, asked_devices, parse_multi, present
from partita.accelerators.interface.settings import read_config
from partita.accelerators.placement.placing import live_part
from partita.accelerators.placement.rules import Forbid, Pin, resolve_rules
from partita.accelerators.placement.support_table import SupportTable, unsupported
from partita.accelerators.precision.calibration import METHODS
from partita.accelerators.precision.lowered_ops import PRECISIONS, lowerable
from partita.accelerators.precision.precision_plan import check_precision
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.graph.errors import did_you_mean
from partita.graph.graph import Graph
from partita.graph.types import Array

Given = Mapping[str, Array]
"""Arrays by the names of the graph's inputs."""

UNITS = {"time": "µs", "memory": "bytes"}
"""The kinds of gain, and their units."""


def check_options(tolerance: float, precisions: Sequence[str], calibration: str, win: str, most: int) -> None:
    """Raises an error that names the option if one is invalid."""
    if not isinstance(most, Integral) or most < 1:
        raise AcceleratorError(f"most is {most!r}", where="choose_precision", remedy="Give a whole number from 1 on")
    if isinstance(precisions, str) or not isinstance(precisions, Sequence):
        cause = f"precisions are a list of names, not {precisions!r:.80}"
        raise AcceleratorError(cause, where="choose_precision", remedy='Write ["int8"]')
    if not isinstance(tolerance, Real) or not 0 <= tolerance < math.inf:
        raise AcceleratorError(f"tolerance is {tolerance!r}", where="choose_precision", remedy="Give a finite number from 0 on")
    offered = {"precisions": (precisions, PRECISIONS), "calibration": ([calibration], METHODS), "win": ([win], tuple(UNITS))}
    for option, (given, known) in offered.items():
        for value in given:
            if value not in known:
                remedy = did_you_mean(str(value), known) or f"There are {', '.join(known)}"
                raise AcceleratorError(f"there is no {value!r}", where=f"choose_precision, option {option}", remedy=remedy)


def batches_of(graph: Graph, inputs: Any, where: str) -> list[Given]:
    """Each call's arrays by name, checked as by a compiled model."""
    names, checker = [node.name for node in graph.inputs], InputChecker(graph)
    calls = inputs if isinstance(inputs, list) else [inputs]
    batches: list[Given] = [dict(zip(names, checker.arrays(call if isinstance(call, tuple) else (call,), {}))) for call in calls]
    if not batches:
        raise AcceleratorError("no inputs are given", where=where, remedy="Give those of one call at least")
    for number, batch in enumerate(batches):
        for name, array in batch.items():
            first = np.shape(batches[0][name])
            if np.shape(array) != first:
                cause = f"{name!r} is of shape {np.shape(array)} in call {number}, and of {first} in call 0"
                remedy = "Give calls of the same sizes; the plan applies to the graph with its symbols"
                raise AcceleratorError(cause, where=f"graph {graph.name!r}", remedy=remedy)
    return batches


def locked_of(graph: Graph, lock: Mapping[str, str]) -> dict[str, str]:
    """The precision of each op that a name or a pattern in `lock` matches."""
    if not isinstance(lock, Mapping):
        cause = f"it gives precisions by the names of ops, not {lock!r:.80}"
        raise AcceleratorError(cause, where="choose_precision, option lock", remedy='Write {"conv1": "float32"}')
    locked: dict[str, str] = {}
    names = [node.name for node in lowerable(graph)]
    for pattern, precision in lock.items():
        if not isinstance(pattern, str):
            cause = f"{pattern!r} is not a name of an op"
            raise AcceleratorError(cause, where="choose_precision, option lock", remedy="Give a name, or a pattern of names")
        check_precision(precision, f"lock[{pattern!r}]")
        fitting = [name for name in names if name == pattern] or _matching(pattern, names)
        if not fitting:
            raise AcceleratorError(
                f"no op that may be lowered is called {pattern!r}", where="choose_precision, option lock",
                remedy=did_you_mean(pattern, names) or "Products with constant float32 weights may be lowered",
            )
        locked.update(dict.fromkeys(fitting, precision))
    return locked


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    try:
        return [name for name in names if re.fullmatch(pattern, name)]
    except re.error as error:
        where, remedy = "choose_precision, option lock", "Give a name, or a pattern of names"
        raise AcceleratorError(f"{pattern!r} is not a pattern: {error}", where=where, remedy=remedy) from error


@attrs.frozen(slots=True)
class Open:
    """The devices among which each op's device is chosen."""

    allowed: Mapping[str, Sequence[str]]
    """The devices that run each op, the preferred one first; a single one if it is pinned."""
    refusals: Mapping[str, Mapping[str, str]]
    """The devices that do not run each op, with the reasons."""
    preferred: tuple[str, ...]
    """The available devices, except the last resort."""
    pinned: frozenset[str]
    """The ops whose device the user pinned."""


class Target:
    """The devices and their configuration, as `compile` takes them."""

    def __init__(self, device: Any, config: Mapping[str, Any] | None) -> None:
        self.device, self.config = device, config
        devices = asked_devices(device)
        settings = read_config(config, devices)
        self.devices = present(devices, settings.by_device, settings.hetero.strict)
        self.by_device = settings.by_device

    @property
    def labels(self) -> tuple[str, ...]:
        """The requested devices, the preferred one first."""
        return tuple(device.label for device in self.devices)

    def compiled(self, graph: Graph, first: str | None = None) -> CompiledModel:
        """The compiled graph; with `first`, each op is on that device if it runs it."""
        others = [label for label in self.labels if label != first]
        return compile_model(graph, self.device if first is None else [first, *others], self.config).wait()

    def opened(self, graph: Graph, win: str, pin: Pin | None, forbid: Forbid | None) -> Open | None:
        """The devices that are open for each op; None if devices are not chosen.

        That is so for a single device, if bytes are to be saved, and if ops have affinities or are calls."""
        here = [d for d in self.devices if not isinstance(d.accelerator, Absent) and not d.accelerator.last_resort]
        live = live_part(graph)
        ops = [node for node in live.nodes if node.is_op]
        reason = None
        if len(here) < 2 or parse_multi(self.device):
            reason = f"only one device is open: {', '.join(self.labels)}"
        elif win != "time":
            reason = f"devices are chosen by time, and {win} is to be won"
        elif any(node.affinity is not None or node.is_call for node in ops):
            reason = "ops of the graph have devices already, or are calls"
        if reason is not None:
            for option in [name for name, rules in (("pin", pin), ("forbid", forbid)) if rules]:
                remedy = f'Name several devices and win="time", or leave {option} out'
                where = f"choose_precision, option {option}"
                raise AcceleratorError(f"{option} has no meaning: {reason}", where=where, remedy=remedy)
            return None
        rules, table = resolve_rules(live, self.devices, pin, forbid), SupportTable(live, self.devices, self.by_device)
        refusals: dict[str, dict[str, str]] = {}
        for node in ops:
            reasons = {label: rules.against(node.name, label) or table.refusals(label).get(node.name) for label in self.labels}
            refusals[node.name] = {label: why for label, why in reasons.items() if why is not None}
        resort = [device.label for device in self.devices if device not in here]
        allowed: dict[str, list[str]] = {}
        for name, refused in refusals.items():
            running = [device.label for device in here if device.label not in refused]
            allowed[name] = running or [label for label in resort if label not in refused][:1]
            if name in rules.pinned:
                allowed[name] = [rules.pinned[name][0]]
                _check_pinned(name, rules.pinned[name], refused)
        homeless = [node for node in ops if not allowed[node.name]]
        if homeless:
            raise unsupported(homeless, self.devices, table, rules)
        return Open(allowed, refusals, tuple(device.label for device in here), frozenset(rules.pinned))


def _check_pinned(name: str, pinned: tuple[str, str], refused: Mapping[str, str]) -> None:
    label, rule = pinned
    if label in refused:
        cause = f"{rule} puts it on {label!r}, which does not run it: {refused[label]}"
        raise AcceleratorError(cause, where=f"node {name!r}", remedy="Pin it to another device")
