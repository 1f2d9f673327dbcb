"""Energy counters, which are only read: RAPL for the host's processors, NVML for NVIDIA's GPUs."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from partita.accelerators.errors import NotSupported

POWERCAP = Path("/sys/class/powercap")
"""The folder of RAPL's zones."""

NVML = "libnvidia-ml.so.1"
"""The library that reads the counters of GPUs."""

Joules = Callable[[], float]
"""The joules that were used since some time."""


def host_counter() -> Joules:
    """The counter of the processors of this machine, other programs' share included; NotSupported, with the reason, if it has
    none."""
    zones = [zone for zone in sorted(POWERCAP.glob("intel-rapl:*")) if zone.name.count(":") == 1]
    if not zones:
        raise _refused(f"this machine has no RAPL counter: there is no zone in {POWERCAP}")
    latest, total = {zone: _microjoules(zone / "energy_uj") for zone in zones}, 0

    def joules() -> float:
        nonlocal total
        for zone in zones:
            now = _microjoules(zone / "energy_uj")
            more = now - latest[zone]
            total += more if more >= 0 else more + _microjoules(zone / "max_energy_range_uj")
            latest[zone] = now
        return total / 1e6

    return joules


def _microjoules(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:
        raise _refused(f"the RAPL counter {path} cannot be read: {error}") from error


def gpu_counter(device_id: str | None) -> Joules:
    """The counter of a GPU; NotSupported, with the reason, if it has none."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        raise _refused("CUDA_VISIBLE_DEVICES renumbers the GPUs, and NVML does not obey it")
    try:
        library: Any = ctypes.CDLL(NVML)
        handle, used = ctypes.c_void_p(), ctypes.c_ulonglong()
        _check("nvmlInit_v2", library.nvmlInit_v2())
        _check("nvmlDeviceGetHandleByIndex_v2", library.nvmlDeviceGetHandleByIndex_v2(int(device_id or 0), ctypes.byref(handle)))
        read = library.nvmlDeviceGetTotalEnergyConsumption
    except (OSError, AttributeError, ValueError) as error:
        raise _refused(f"NVML is not here: {error}") from error

    def joules() -> float:
        _check("nvmlDeviceGetTotalEnergyConsumption", read(handle, ctypes.byref(used)))
        return used.value / 1e3

    joules()
    return joules


def _check(function: str, status: int) -> None:
    if status:
        raise _refused(f"{function} of NVML failed with status {status}")


def _refused(cause: str) -> NotSupported:
    return NotSupported(cause, where="energy", remedy="Leave energy out; times are measured everywhere")


def watts(joules: Joules, call: Callable[[], Any], seconds: float) -> float:
    """The mean power while the call is repeated for so long."""
    start, before = perf_counter(), joules()
    while perf_counter() - start < seconds:
        call()
    used, taken = joules() - before, perf_counter() - start
    if used <= 0:
        raise _refused("the energy counter does not move")
    return used / taken
