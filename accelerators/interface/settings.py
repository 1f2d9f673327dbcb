"""Parses the `config` of `compile` into each device's values and those of HETERO itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import attrs

from partita.accelerators.errors import BadConfig, UnknownDevice, UnknownKey
from partita.accelerators.interface.device_list import Device, asked_devices
from partita.accelerators.interface.keys import (
    Key,
    flag,
    flag_or_auto,
    folder_or_flag,
    one_of,
    optional,
    positive,
    record,
    seconds,
    text,
)
from partita.accelerators.interface.registry import HETERO, accelerator
from partita.graph.errors import did_you_mean

MEASURED = "PERF_COUNT"
"""The device key that is also valid beside several devices: a model is measured as a whole."""


def _setting(name: str, key: Key) -> Any:
    """A field of `HeteroSettings` that this configuration key sets."""
    return attrs.field(default=key.read(name, key.default, f"config of {HETERO}"), metadata={"name": name, "key": key})


@attrs.frozen(slots=True)
class HeteroSettings:
    """The settings that hold for the compiled model as a whole: a field and its key for each."""

    dot_folder: Path | None = _setting("HETERO_DUMP_GRAPH_DOT", Key(False, folder_or_flag, names_files=True))  # noqa: RUF009
    """The folder of the two .dot files."""
    requests: int | None = _setting("NUM_REQUESTS", Key(None, optional(positive)))
    """The number of asynchronous requests that run at once; None: as many as are worth it."""
    queue: int | None = _setting("QUEUE_SIZE", Key(None, optional(positive)))
    """The number of further requests that may wait before `start` does; None: twice the requests."""
    full: str = _setting("QUEUE_FULL", Key("wait", one_of("wait", "error")))
    """The behaviour of `start` while the queue is full: "wait" for room, or raise an "error"."""
    limit: float | None = _setting("REQUEST_SECONDS", Key(None, optional(seconds)))
    """The time limit of a request, from `start` on; None: no limit."""
    parallel: bool | None = _setting("PARALLEL", Key("AUTO", flag_or_auto))
    """Run independent subgraphs concurrently. None (AUTO): if measured to be faster."""
    pipeline: bool | None = _setting("PIPELINE", Key(False, flag_or_auto))
    """Requests pass through the devices as a pipeline, in the order in which they were started. None (AUTO): if
    measured to be faster."""
    strict: bool = _setting("STRICT", Key(False, flag))
    """Raise an error if a device cannot compile a subgraph that it accepted. Otherwise the next device gets it."""
    start: str = _setting("START", Key("wait", one_of("wait", "now"), names_files=True))
    """`compile` "wait"s for the devices, or returns "now" and lets others answer until they are ready."""
    start_with: str | None = _setting("START_WITH", Key(None, optional(text), names_files=True))
    """The devices that answer until then, as `compile` takes them; None: an installed engine, then `reference`."""
    start_seconds: float = _setting("START_SECONDS", Key(3600.0, seconds))
    """The time limit of a device for a subgraph that it compiles meanwhile, in a process of its own."""
    capsules: Path | None = _setting("CAPSULES", Key(False, folder_or_flag, names_files=True))  # noqa: RUF009
    """The folder for a capsule of each subgraph that fails to compile or to run."""
    record: str | None = _setting("RECORD", Key(None, optional(record)))
    """The mode of the recorder: "checksums", "nan", or "sample:N" for every N-th call."""


HETERO_KEYS: Mapping[str, Key] = {field.metadata["name"]: field.metadata["key"] for field in attrs.fields(HeteroSettings)}
"""The keys that hold for the compiled model as a whole."""


@attrs.frozen(slots=True)
class Config:
    """The configuration of a compilation."""

    hetero: HeteroSettings
    """The settings for the model as a whole."""
    by_device: Mapping[str, Mapping[str, Any]]
    """For each device label, a value for each of the device's keys."""
    stand_ins: Sequence[tuple[Device, Mapping[str, Any]]] = ()
    """Devices, with their values, that run a new size while another compiles it in the background; empty: calls wait for it."""
    said: Mapping[str, Set[str]] = attrs.field(factory=dict)
    """The keys that the user set, for each device label; the others have the device's own values."""

    def of(self, device: Device, first: bool) -> Config:
        """The settings for one device alone; graphs are drawn only for the first device."""
        hetero = self.hetero if first else attrs.evolve(self.hetero, dot_folder=None)
        return Config(hetero, {device.label: self.by_device[device.label]})


def read_config(config: Mapping[str, Any] | None, devices: Sequence[Device]) -> Config:
    """Checks and completes the configuration: a dictionary by device, flat if there is only one device."""
    given = dict(check_config({} if config is None else config, "config"))
    labels = {device.label for device in devices} | {device.accelerator.name for device in devices}
    hetero = dict(check_config(given.pop(HETERO, {}), f"config of {HETERO}"))
    for key in [key for key in given if key.removeprefix("KEY_") in HETERO_KEYS]:
        hetero[key] = given.pop(key)
    nested = {key: check_config(value, f"config of device {key!r}") for key, value in given.items() if key in labels}
    flat = {key: value for key, value in given.items() if key not in nested}
    everywhere = {key: flat.pop(key) for key in list(flat) if len(devices) > 1 and key.removeprefix("KEY_") == MEASURED}
    if flat and len(devices) > 1:
        key = next(iter(flat))
        remedy = did_you_mean(key, {*labels, HETERO}) or f"Configure by device: config={{{devices[0].label!r}: {{{key!r}: ...}}}}"
        raise UnknownDevice(f"{key!r} is none of the devices asked for", where="config", remedy=remedy)
    own = {device.label: _given(device, nested, flat, everywhere) for device in devices}
    values = {device.label: device.accelerator.full_config(own[device.label]) for device in devices}
    said = {label: frozenset(key.removeprefix("KEY_") for key in keys) for label, keys in own.items()}
    return Config(_read_hetero(hetero), values, said=said)


def _given(
    device: Device, nested: Mapping[str, Mapping[str, Any]], flat: Mapping[str, Any], everywhere: Mapping[str, Any]
) -> dict[str, Any]:
    """The given values of one device."""
    own = {**everywhere, **nested.get(device.accelerator.name, {}), **nested.get(device.label, {}), **flat}
    if device.device_id is None:
        return own
    values = device.accelerator.labelled(device.device_id)
    if "DEVICE_ID" not in values:
        return {**values, **own}
    for key in ("DEVICE_ID", "KEY_DEVICE_ID"):
        if str(own.pop(key, device.device_id)) != device.device_id:
            remedy = "Say it once: after the dot, or in the configuration"
            raise BadConfig(f"{key} is another one than the device asked for", where=f"config of {device.label!r}", remedy=remedy)
    return {**own, "DEVICE_ID": device.device_id}


def check_config(value: Any, where: str) -> Mapping[str, Any]:
    """The value, if it is a dictionary by key; else an error."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise BadConfig(f"it is a dictionary by key, not {value!r}", where=where, remedy='Write config={"NUM_THREADS": 2}')
    return value


def _read_hetero(values: Mapping[str, Any]) -> HeteroSettings:
    """The given settings, else HETERO's own."""
    defaults = accelerator(HETERO)
    settings = {name: defaults.get_config(name) for name in HETERO_KEYS}
    for name, value in values.items():
        plain = name.removeprefix("KEY_")
        if plain not in HETERO_KEYS:
            remedy = did_you_mean(plain, HETERO_KEYS) or f"It has {', '.join(sorted(HETERO_KEYS))}"
            raise UnknownKey(f"{HETERO} has no configuration key {name!r}", remedy=remedy)
        settings[plain] = value
    where = f"config of {HETERO}"
    return _read_settings(settings, where)


def _read_settings(values: Mapping[str, Any], where: str) -> HeteroSettings:
    """The settings of these keys."""
    fields = {field.metadata["name"]: field.name for field in attrs.fields(HeteroSettings)}
    return HeteroSettings(**{fields[name]: HETERO_KEYS[name].read(name, value, where) for name, value in values.items()})


def settings_of_file(fields: Mapping[str, Any], where: str) -> HeteroSettings:
    """The settings of a file, by field name. Settings that may name files are ignored."""
    names = {field.name: field.metadata["name"] for field in attrs.fields(HeteroSettings)}
    values = {names[field]: value for field, value in fields.items()}
    return _read_settings({name: value for name, value in values.items() if not HETERO_KEYS[name].names_files}, where)


def with_key(config: Mapping[str, Any], devices: str | Sequence[str] | None, key: str, value: Any) -> dict[str, Any]:
    """The configuration with the key set for each device that has it and has no other value for it."""
    extended = dict(config)
    asked = asked_devices(devices)
    for device in asked:
        if key in device.accelerator.get_metric("SUPPORTED_CONFIG_KEYS") and not (len(asked) == 1 and key in config):
            extended[device.label] = {key: value, **extended.get(device.label, {})}
    return extended
