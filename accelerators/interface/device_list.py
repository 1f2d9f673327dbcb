"""Device strings: "onnxruntime", "openvino.GPU.0", "HETERO:cuda,cpu,reference"; stand-ins for devices that cannot run here."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError, AcceleratorUnavailable, BadConfig, BrokenPackage, UnknownDevice
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.habits import meant_devices
from partita.accelerators.interface.registry import HETERO, accelerator, is_known
from partita.graph.errors import did_you_mean
from partita.graph.graph import Graph

DEFAULT = "HETERO:cpu,reference"
"""The default devices."""


MULTI = "MULTI"
"""The prefix of a string that names several devices, each of which runs the whole model."""

AUTO = "AUTO"
"""The prefix of a string that names devices among which `compile` chooses by measuring."""


@attrs.frozen(slots=True, eq=False)
class Device:
    """One requested device."""

    label: str
    """The label as the user wrote it, which affinities, placements and configurations use."""
    accelerator: Accelerator
    """The accelerator that compiles for it."""
    device_id: str | None
    """The part of the label after its first dot."""


def parse_devices(wanted: str | Sequence[str] | None) -> tuple[Device, ...]:
    """The devices of a string (or a list of names) in order of priority; None means the default ones, which HETERO's
    TARGET_FALLBACK may set.

    An unknown or repeated device is an error. One of several that cannot be used here is skipped: it refuses every op. A
    single device that cannot be used is an error."""
    text = _default(wanted)
    where = f"device {text!r:.80}"
    if not isinstance(text, (str, list, tuple)) or not all(isinstance(label, str) for label in text):
        remedy = 'Write "HETERO:first,second"'
        if any(hasattr(item, "shape") for item in (text if isinstance(text, (list, tuple)) else (text,))):
            where = f"device {type(text).__name__}"
            remedy = "Inputs go by name: pt.compile(module, devices, example_inputs=...)"
        raise AcceleratorError("it is neither a string nor a list of names", where=where, remedy=remedy)
    labels = _labels(text)
    if not labels:
        raise AcceleratorError("no device is named", where=where, remedy='Write "HETERO:first,second", or one name')
    for label in labels:
        if labels.count(label) > 1:
            raise AcceleratorError(f"{label!r} is named twice", where=where, remedy="Name each device once, the best first")
    return (_device(labels[0]),) if len(labels) == 1 else tuple(_device_or_absent(label) for label in labels)


def parse_multi(wanted: Any) -> tuple[Device, ...]:
    """The devices of "MULTI:first,second"; a name without an id stands for all of its devices. Empty for any other string."""
    head, _, rest = wanted.partition(":") if isinstance(wanted, str) else ("", "", "")
    if head.strip().upper() != MULTI:
        return ()
    return parse_devices([label for name in rest.split(",") if name.strip() for label in _each(name.strip())])


def parse_auto(wanted: Any) -> list[str] | None:
    """The labels in "AUTO:first,second"; None for any other string."""
    head, colon, rest = wanted.partition(":") if isinstance(wanted, str) else ("", "", "")
    if not colon or head.strip().upper() != AUTO:
        return None
    return [label.strip() for label in rest.split(",") if label.strip()]


def asked_devices(wanted: str | Sequence[str] | None) -> tuple[Device, ...]:
    """The devices of any string that `compile` takes."""
    return parse_multi(wanted) or parse_devices(wanted)


def _each(label: str) -> list[str]:
    """The label; if it has no id and its accelerator has several devices, the label of each."""
    ids = [] if "." in label else _device_or_absent(label).accelerator.get_metric("AVAILABLE_DEVICES")
    return [f"{label}.{number}" for number in ids] if len(ids) > 1 else [label]


def find_device(label: str, devices: Iterable[Device], where: str) -> Device:
    """The device of that label among the requested ones."""
    known = {device.label: device for device in devices}
    if not isinstance(label, str):
        remedy = f"They are {', '.join(known)}"
        raise UnknownDevice(f"a device is named by a string, not by {label!r}", where=where, remedy=remedy)
    if label not in known:
        remedy = did_you_mean(label, known) or f"They are {', '.join(known)}"
        raise UnknownDevice(f"{label!r} is none of the devices asked for", where=where, remedy=remedy)
    return known[label]


def _labels(wanted: str | Sequence[str]) -> list[str]:
    if not isinstance(wanted, str):
        return [label.strip() for label in wanted]
    head, colon, rest = wanted.partition(":")
    if head.strip().upper() == HETERO:
        return [label.strip() for label in rest.split(",") if label.strip()]
    if head.strip().upper() == MULTI:
        remedy = f"{MULTI} is for compile, and puts all ops on each device: ask about one of them"
        raise UnknownDevice(f"there is no device {wanted!r}", remedy=remedy)
    if colon or "," in wanted:
        raise UnknownDevice(f"there is no device {wanted!r}", remedy=meant_devices(wanted))
    return [wanted.strip()] if wanted.strip() else []


def _default(wanted: Any) -> Any:
    """The given devices; if there are none, those of TARGET_FALLBACK."""
    alone = isinstance(wanted, str) and wanted.strip().upper().rstrip(":") == HETERO
    if wanted is not None and not alone:
        return wanted
    named = accelerator(HETERO).get_config("TARGET_FALLBACK")
    return f"{HETERO}:{named}" if named else wanted or DEFAULT


def _device_or_absent(label: str) -> Device:
    name, _, device_id = label.partition(".")
    try:
        return _device(label)
    except AcceleratorUnavailable as error:
        if isinstance(error, BrokenPackage):
            warnings.warn(f"{label} is skipped: {error}", stacklevel=2)
        return Device(label, Absent(name, error.cause), device_id or None)
    except BadConfig:
        one = accelerator(name)
        reason = one.why_not_here(one.full_config({}))
        if reason is None:
            raise
        return Device(label, Absent(name, reason), device_id)


def _device(label: str) -> Device:
    name, dot, device_id = label.partition(".")
    head, colon, _ = name.partition(":")
    if colon and head.upper() in (HETERO, MULTI, AUTO):
        remedy = "HETERO:, MULTI: and AUTO: stand once, before the whole list"
        raise UnknownDevice(f"{label!r} is not a device of a list", remedy=remedy)
    if name in (HETERO, MULTI):
        raise UnknownDevice(f"{name} is not a device: it stands for several", remedy=f"Write {name}:first,second")
    if not is_known(name) and is_known(name.lower()):
        raise UnknownDevice(f"there is no device {name!r}", remedy=f"Did you mean {name.lower()!r}?")
    if dot and not device_id:
        remedy = f"A DEVICE_ID follows the dot; write {name!r} for the first device"
        raise UnknownDevice(f"there is no device {label!r}", remedy=remedy)
    device = Device(label, accelerator(name), device_id or None)
    if device.device_id is not None and "DEVICE_ID" in device.accelerator.labelled(device.device_id):
        device.accelerator.check_device_id(device.device_id)
    return device


class Absent(Accelerator):
    """A stand-in for one of several devices that cannot run here: it refuses every op and gives the reason."""

    isolates_itself = True

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
