"""Checking the values that a device's configuration gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerators.errors import AcceleratorError
from graph.errors import did_you_mean


def choice(config: Mapping[str, Any], key: str, known: Mapping[str, Any], device: str) -> Any:
    """What the configured name stands for; an unknown one is an error that lists the known ones."""
    value = str(config[key])
    if value not in known:
        raise AcceleratorError(
            f"{key} cannot be {value!r}",
            where=f"device {device!r}",
            remedy=f"{did_you_mean(value, known) or ''} It can be {', '.join(known)}".strip(),
        )
    return known[value]


def count(config: Mapping[str, Any], key: str, device: str) -> int:
    """A number that is not negative; 0 leaves the choice to the engine."""
    value = config[key]
    number = int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else -1
    if number < 0 or isinstance(value, bool):
        raise AcceleratorError(
            f"{key} cannot be {value!r}", where=f"device {device!r}", remedy="Give a number; 0 means: as the engine likes"
        )
    return number


def flag(config: Mapping[str, Any], key: str, device: str) -> bool:
    """Yes or no."""
    value = config[key]
    if value in (True, "YES", "true", "True", "1", 1):
        return True
    if value in (False, "NO", "false", "False", "0", 0, None):
        return False
    raise AcceleratorError(f"{key} cannot be {value!r}", where=f"device {device!r}", remedy="Give True or False (or YES or NO)")
