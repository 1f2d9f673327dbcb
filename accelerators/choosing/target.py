"""The devices of a model, and those among which each op's device is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.compiling import compile as compile_model
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.device_list import asked_devices, parse_multi
from partita.accelerators.interface.settings import read_config
from partita.accelerators.interface.unavailable import Absent, present
from partita.accelerators.placement.placing import live_part
from partita.accelerators.placement.rules import Forbid, Pin, resolve_rules
from partita.accelerators.placement.support_table import SupportTable, unsupported
from partita.accelerators.running.compiled_model import CompiledModel
from partita.graph.graph import Graph


@attrs.frozen(slots=True)
class Open:
    """The devices among which each op's device is chosen."""

    allowed: Mapping[str, Sequence[str]]
    """For each op the devices that run it, the preferred one first; a single one if it is pinned."""
    refusals: Mapping[str, Mapping[str, str]]
    """For each op the devices that do not run it, with the reasons."""
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
