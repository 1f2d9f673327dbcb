"""Devices in processes of their own: with ISOLATE, a crash or a hang of one is an ordinary error.

A device's queries, compilations and runs happen in a child process, one for each class of device, which is
started on first use and again after it has ended. Graphs are sent as ONNX models, arrays through shared memory,
everything else as JSON. Nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.interface.accelerator import Accelerator


def in_its_place(accelerator: Accelerator, config: Mapping[str, Any]) -> Accelerator:
    """The accelerator; if this configuration sets ISOLATE, a version of it in a child process, unless it is one already."""
    if not config.get("ISOLATE") or accelerator.isolates_itself or hasattr(accelerator, "device_class"):
        return accelerator
    from partita.accelerators.interface.isolation.isolated_device import isolated  # start-up

    return isolated(accelerator)


def has_own_query(accelerator: Accelerator) -> bool:
    """True if the device's class defines `query` itself."""
    kind: type[Accelerator] = getattr(accelerator, "device_class", type(accelerator))
    return kind.query is not Accelerator.query
