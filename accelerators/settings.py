"""The `config` of `compile`, taken apart: each device's values, and those of HETERO itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from accelerators.device_list import HETERO, Device
from accelerators.errors import AcceleratorError, BadConfig, NotSupported, UnknownDevice, UnknownKey
from graph.errors import PartitaError, did_you_mean

_PRECISIONS = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}
"""The values of PRECISION, each with the capability that a device must list."""

_YES, _NO = ("YES", "TRUE", "1"), ("NO", "FALSE", "0")


@attrs.frozen(slots=True)
class HeteroSettings:
    """What holds for the compiled model as a whole."""

    dot_folder: Path | None = None
    """HETERO_DUMP_GRAPH_DOT: the folder that the two .dot files go to."""
    requests: int | None = None
    """NUM_REQUESTS: how many asynchronous requests run at once; None: as many as are worth it."""
    queue: int | None = None
    """QUEUE_SIZE: how many more may wait before `start` does; None: twice the requests."""
    parallel: bool | None = None
    """PARALLEL: do independent subgraphs run side by side? None (AUTO): where it is measured to be faster."""


@attrs.frozen(slots=True)
class Config:
    """What was configured."""

    hetero: HeteroSettings
    """For the model as a whole."""
    by_device: Mapping[str, Mapping[str, Any]]
    """By device label, a value for each of its keys."""


def read_config(config: Mapping[str, Any] | None, devices: Sequence[Device]) -> Config:
    """Check and complete the configuration: a dictionary by device, flat where there is only one device."""
    given = dict(_mapping(config or {}, "config"))
    labels = {device.label for device in devices} | {device.accelerator.name for device in devices}
    hetero = dict(_mapping(given.pop(HETERO, {}), f"config of {HETERO}"))
    for key in [key for key in given if key.removeprefix("KEY_") in _READERS]:
        hetero[key] = given.pop(key)
    nested = {key: _mapping(value, f"config of device {key!r}") for key, value in given.items() if key in labels}
    flat = {key: value for key, value in given.items() if key not in nested}
    if flat and len(devices) > 1:
        key = next(iter(flat))
        remedy = did_you_mean(key, {*labels, HETERO}) or f"Configure by device: config={{{devices[0].label!r}: {{{key!r}: ...}}}}"
        raise UnknownDevice(f"{key!r} is none of the devices asked for", where="config", remedy=remedy)
    return Config(_read_hetero(hetero), {device.label: _values(device, nested, flat) for device in devices})


def _values(device: Device, nested: Mapping[str, Mapping[str, Any]], flat: Mapping[str, Any]) -> dict[str, Any]:
    accelerator = device.accelerator
    own = {**nested.get(accelerator.name, {}), **nested.get(device.label, {}), **flat}
    values = accelerator.full_config(own)
    if device.device_id is not None:
        values["DEVICE_ID"] = device.device_id
    where = f"config of device {device.label!r}"
    values["PERF_COUNT"] = _flag("PERF_COUNT", values["PERF_COUNT"], where)
    _check_precision(device, values["PRECISION"], where)
    return values


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise BadConfig(f"it is a dictionary by key, not {value!r}", where=where, remedy='Write config={"NUM_THREADS": 2}')
    return value


def _check_precision(device: Device, precision: Any, where: str) -> None:
    if precision not in list(_PRECISIONS):
        raise BadConfig(f"there is no PRECISION {precision!r}", where=where, remedy=f"There are {', '.join(_PRECISIONS)}")
    if precision == "f32":
        return
    able = _capabilities(device)
    if _PRECISIONS[precision] not in able:
        raise NotSupported(
            f"the device cannot compute in {precision}",
            where=where,
            remedy=f"Its capabilities are {', '.join(able)}; leave PRECISION at f32, or choose another device",
        )


def _capabilities(device: Device) -> Sequence[str]:
    try:
        return list(device.accelerator.get_metric("OPTIMIZATION_CAPABILITIES"))
    except PartitaError:
        raise
    except Exception as error:
        cause = f"its metrics raise {type(error).__name__}: {error}"
        raise AcceleratorError(cause, where=f"device {device.label!r}") from error


def _read_hetero(values: Mapping[str, Any]) -> HeteroSettings:
    fields: dict[str, Any] = {}
    for key, value in values.items():
        plain = key.removeprefix("KEY_")
        if plain not in _READERS:
            remedy = did_you_mean(plain, _READERS) or f"It has {', '.join(sorted(_READERS))}"
            raise UnknownKey(f"{HETERO} has no configuration key {key!r}", remedy=remedy)
        field, reader = _READERS[plain]
        fields[field] = reader(plain, value, f"config of {HETERO}")
    return HeteroSettings(**fields)


def _flag(key: str, value: Any, where: str) -> bool:
    text = str(value).upper()
    if text in _YES or text in _NO:
        return text in _YES
    raise BadConfig(f"{key} is True or False, not {value!r}", where=where)


def _folder(key: str, value: Any, where: str) -> Path | None:
    if isinstance(value, (str, Path)) and str(value).upper() not in (*_YES, *_NO):
        return Path(value)
    return Path() if _flag(key, value, where) else None


def _count(key: str, value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadConfig(f"{key} is a positive number, not {value!r}", where=where)
    return value


def _auto(key: str, value: Any, where: str) -> bool | None:
    return None if str(value).upper() == "AUTO" else _flag(key, value, where)


_READERS = {
    "HETERO_DUMP_GRAPH_DOT": ("dot_folder", _folder),
    "NUM_REQUESTS": ("requests", _count),
    "QUEUE_SIZE": ("queue", _count),
    "PARALLEL": ("parallel", _auto),
}

HETERO_KEYS = frozenset(_READERS)
"""The keys that hold for the compiled model as a whole."""
