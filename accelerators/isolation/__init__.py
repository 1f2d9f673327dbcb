"""Devices in processes of their own: where the configuration says ISOLATE, a crash or a hang of one is an error like another.

What a device is asked (its `query`), what it compiles and what it runs are handed to a child process, one for each class of
device, which is started when it is first needed and again after it has ended. Graphs travel as ONNX models, arrays through memory
that both processes see, everything else as JSON. Nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.interface.accelerator import Accelerator


def in_its_place(accelerator: Accelerator, config: Mapping[str, Any]) -> Accelerator:
    """The accelerator; where this configuration says ISOLATE, one that has it in a child process, unless it is such a one."""
    if not config.get("ISOLATE") or accelerator.isolates_itself or hasattr(accelerator, "device_class"):
        return accelerator
    from partita.accelerators.isolation.isolated_device import isolated

    return isolated(accelerator)


def has_own_query(accelerator: Accelerator) -> bool:
    """Does the device's class define `query` itself?"""
    kind: type[Accelerator] = getattr(accelerator, "device_class", type(accelerator))
    return kind.query is not Accelerator.query
