"""The part of a plan about devices: each op's device, its time on each device, and the devices that refused it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError, NotSupported, UnknownDevice
from partita.accelerators.interface.device_list import Device, parse_devices, present
from partita.accelerators.interface.settings import read_config
from partita.accelerators.placement.support_table import SupportTable
from partita.accelerators.precision.calibration import Range
from partita.accelerators.precision.lowered_ops import lowered
from partita.graph.errors import did_you_mean
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.graph.rewrite import with_affinities, with_changes
from partita.passes.infer import infer

Times = Mapping[str, Mapping[str, float]]
"""The microseconds of an op on each device, by precision."""

CONVERTING = ops("quantizing") | {"Cast"}
"""The ops that lowering adds: each runs on any device that supports it, if its neighbour's device does not."""


@attrs.define(slots=True)
class DevicePlan:
    """The device of each op."""

    devices: tuple[str, ...]
    """The requested devices, the preferred one first."""
    placement: dict[str, str]
    """The device of each op, by name."""
    times: Mapping[str, Times]
    """The time of each op on each device that ran it, by name."""
    refusals: Mapping[str, Mapping[str, str]]
    """The reasons why devices do not run an op in float32, by the op's name and by device."""
    by_hand: set[str]
    """The ops whose device the user set."""
    measured: tuple[str, ...]
    """The measurements of whole models, a sentence for each."""

    @property
    def pinned(self) -> dict[str, str]:
        """The devices that the user set, as patterns of names that `pin` takes."""
        return {re.escape(name): label for name, label in self.placement.items() if name in self.by_hand}

    def place(self, name: str, device: str) -> None:
        """Moves an op to another of the devices."""
        where = f"plan.place({name!r})"
        if name not in self.placement:
            remedy = did_you_mean(str(name), self.placement) or "It lists the ops that some output needs"
            raise AcceleratorError(f"there is no op {name!r}", where=where, remedy=remedy)
        check_label(device, self.devices, where)
        self.placement[name] = device
        self.by_hand.add(name)

    def why(self, name: str) -> list[str]:
        """The op's time on each device, and why others refuse it, a line for each."""
        lines = ["  its device was set from outside"] if name in self.by_hand else []
        for label in self.devices:
            times = self.times.get(name, {}).get(label, {})
            if label in self.refusals.get(name, {}):
                lines.append(f"  not on {label}: {self.refusals[name][label]}")
            elif times:
                lines.append(f"  on {label}: " + ", ".join(f"{us:,.1f} µs in {precision}" for precision, us in times.items()))
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "devices": list(self.devices),
            "placement": dict(self.placement),
            "times": self.times,
            "refusals": self.refusals,
            "by_hand": sorted(self.by_hand),
            "measured": list(self.measured),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> DevicePlan:
        """Reads the result of `to_dict`; ValueError, TypeError, KeyError or AttributeError for anything else."""
        devices = tuple(map(_text, content["devices"]))
        placement = {_text(name): _text(label) for name, label in content["placement"].items()}
        for name, label in placement.items():
            check_label(label, devices, f"the device of {name!r}")
        times = {
            _text(name): {_text(d): {_text(p): float(us) for p, us in of.items()} for d, of in each.items()}
            for name, each in content["times"].items()
        }
        refusals = {_text(n): {_text(d): _text(why) for d, why in each.items()} for n, each in content["refusals"].items()}
        by_hand = set(map(_text, content["by_hand"]))
        return cls(devices, placement, times, refusals, by_hand, tuple(map(_text, content["measured"])))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a name is expected, not {value!r:.80}")
    return value


def check_label(label: str, labels: Sequence[str], where: str) -> None:
    """Raises if a device is not among the requested ones."""
    if label not in labels:
        remedy = did_you_mean(str(label), labels) or f"They are {', '.join(labels)}"
        raise UnknownDevice(f"{label!r} is none of the devices asked for", where=where, remedy=remedy)


def with_devices(graph: Graph, placement: Mapping[str, str]) -> Graph:
    """The graph with these devices as affinities; lowering copies them to the ops that it adds. Linear."""
    missing = [name for name in placement if name not in graph]
    if missing:
        raise AcceleratorError(
            f"the plan gives {missing[0]!r} a device, and the graph has no such op", where=f"graph {graph.name!r}",
            remedy="Apply the plan to the graph that choose_precision was given, or choose again",
        )

    return with_affinities(graph, placement)


def lowered_on(
    graph: Graph,
    precisions: Mapping[str, str],
    ranges: Mapping[str, Range],
    placement: Mapping[str, str] | None,
    labels: Sequence[str],
    config: Mapping[str, Any] | None = None,
) -> Graph:
    """The typed graph in these precisions, on the devices of the placement if there is one."""
    if placement is None:
        return infer(lowered(graph, precisions, ranges), strict=False)
    return on_devices(infer(lowered(with_devices(graph, placement), precisions, ranges), strict=False), labels, config)


def on_devices(graph: Graph, labels: Sequence[str], config: Mapping[str, Any] | None = None) -> Graph:
    """The lowered graph, each op on a device that supports it: an error if an op of the plan is no longer supported.

    An op that lowering added goes to the first device that supports it, if its neighbour's device does not."""
    devices = parse_devices(list(labels))
    settings = read_config(config, devices)
    devices = present(devices, settings.by_device, strict=False)
    table = SupportTable(graph, devices, settings.by_device)

    return with_changes(graph, lambda node: {"affinity": _label(node, devices, table)} if node.is_op else {})


def _label(node: Node, devices: Sequence[Device], table: SupportTable) -> str:
    """The node's device, if it supports the node."""
    wanted = node.affinity
    reason = None if wanted is None else table.refusals(wanted).get(node.name)
    if wanted is not None and reason is None:
        return wanted
    running = [device.label for device in devices if node.name not in table.refusals(device.label)]
    if running and (wanted is None or node.op in CONVERTING):
        return running[0]
    elsewhere = f"{', '.join(running)} would run it" if running else "none of the plan's devices runs it"
    dtype = getattr(node[0].type, "dtype", None)
    kind = f"{node.op} in {dtype}" if dtype else node.op
    raise NotSupported(
        f"the plan puts it on {wanted!r}, which does not run it: {reason}", where=f"node {node.name!r} ({kind})",
        remedy=f"Place it elsewhere, or give it another precision, or choose again: {elsewhere}",
    )
