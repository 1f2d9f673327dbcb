"""Configuration keys that are set for every device that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators.interface.device_list import asked_devices


def with_key(config: Mapping[str, Any], devices: str | Sequence[str] | None, key: str, value: Any) -> dict[str, Any]:
    """The configuration with the key set for each device that has it and has no other value for it."""
    extended = dict(config)
    asked = asked_devices(devices)
    for device in asked:
        if key in device.accelerator.get_metric("SUPPORTED_CONFIG_KEYS") and not (len(asked) == 1 and key in config):
            extended[device.label] = {key: value, **extended.get(device.label, {})}
    return extended
