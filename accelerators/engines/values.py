"""Checking the values that a device's configuration gets."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from accelerators.errors import BadConfig
from graph.errors import did_you_mean


def choice(config: Mapping[str, Any], key: str, known: Mapping[str, Any], device: str) -> Any:
    """What the configured name stands for; an unknown one is an error that lists the known ones."""
    value = str(config[key])
    if value not in known:
        raise BadConfig(
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
        raise BadConfig(
            f"{key} cannot be {value!r}", where=f"device {device!r}", remedy="Give a number; 0 means: as the engine likes"
        )
    return number


def flag(config: Mapping[str, Any], key: str, device: str) -> bool:
    """Yes or no."""
    value = config[key]
    text = str(value).upper()
    if text in ("YES", "TRUE", "1"):
        return True
    if value is None or text in ("NO", "FALSE", "0"):
        return False
    raise BadConfig(f"{key} cannot be {value!r}", where=f"device {device!r}", remedy="Give True or False (or YES or NO)")


def seconds(config: Mapping[str, Any], key: str, device: str) -> float:
    """A time that is more than nothing."""
    value = config[key]
    with contextlib.suppress(TypeError, ValueError):
        if not isinstance(value, bool) and 0 < float(value) < math.inf:
            return float(value)
    raise BadConfig(f"{key} cannot be {value!r}", where=f"device {device!r}", remedy="Give a number of seconds")


def callback(config: Mapping[str, Any], key: str, device: str) -> Callable[..., Any] | None:
    """A function, or None."""
    value = config[key]
    if value is not None and not callable(value):
        raise BadConfig(f"{key} cannot be {value!r}", where=f"device {device!r}", remedy="Give a function, or None")
    return value  # type: ignore[no-any-return]


def mapping(config: Mapping[str, Any], key: str, device: str) -> dict[str, Any]:
    """A dictionary."""
    value = config[key]
    if not isinstance(value, Mapping):
        raise BadConfig(f"{key} cannot be {value!r}", where=f"device {device!r}", remedy="Give a dictionary")
    return dict(value)
