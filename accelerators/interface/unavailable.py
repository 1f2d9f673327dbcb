"""A stand-in for one of several devices that cannot run here: it refuses every op and gives the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorUnavailable
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.device_list import Device
from partita.graph.graph import Graph


class Absent(Accelerator):
    """Stands in for the device."""

    isolates_itself = True
    travels_as_body = True

    def __init__(self, name: str, reason: str) -> None:
        self.name = name  # type: ignore[misc]
        self.reason = reason
        """The reason why the device cannot run here."""
        super().__init__()

    def query(self, graph: Graph) -> Mapping[str, bool | str]:
        """Refuse every op."""
        return {node.name: self.reason for node in graph.nodes if node.is_op}

    def checked_config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values unchanged: without the device they cannot be checked."""
        return dict(values)


def present(devices: Sequence[Device], by_device: Mapping[str, Mapping[str, Any]], strict: bool) -> tuple[Device, ...]:
    """The devices, with a stand-in that refuses every op for each that cannot run here as configured. A single device stays.

    Raises AcceleratorUnavailable if no device is left, or if any is missing and `strict` is set."""
    if len(devices) == 1:
        return tuple(devices)
    seen = tuple(_seen(device, by_device[device.label]) for device in devices)
    missing = [(device.label, device.accelerator.reason) for device in seen if isinstance(device.accelerator, Absent)]
    if missing and (strict or len(missing) == len(seen)):
        why = "every device has to be here (strict)" if strict else "name a device that is here, as cpu or reference"
        causes = "; ".join(f"{label} cannot run here: {reason}" for label, reason in missing)
        raise AcceleratorUnavailable(causes, where=", ".join(device.label for device in devices), remedy=why.capitalize())
    return seen


def notes_on(devices: Sequence[Device]) -> list[str]:
    """A note on each device that was skipped."""
    absent = [(device.label, device.accelerator) for device in devices]
    return [f"skipped: {label}: {one.reason}" for label, one in absent if isinstance(one, Absent)]


def _seen(device: Device, values: Mapping[str, Any]) -> Device:
    reason = device.accelerator.why_not_here(values)
    return device if reason is None else attrs.evolve(device, accelerator=Absent(device.accelerator.name, reason))
