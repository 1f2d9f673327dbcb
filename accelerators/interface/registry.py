"""The registered accelerators: the shipped ones, those registered by call, and those that installed packages offer."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import attrs

from partita.accelerators.errors import AcceleratorError, BrokenPackage, UnknownDevice
from partita.accelerators.interface import PASSES, SHIPPED, Shipped
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.habits import REGISTER, meant_device
from partita.accelerators.process.forking import Guard
from partita.graph.formatting import error_in_words
from partita.partition.backend import BackendSource, PropertyFactory, add_backend_source, has_properties, warn_of_two
from partita.partition.property import SubgraphProperty
from partita.passes.registry import FAMILIES

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

HETERO = "HETERO"
"""The prefix of a string that names several devices by priority."""

ENTRY_POINTS = "partita.accelerators"
"""The entry-point group in which a package offers its accelerators: the name is the device's, the object its class."""

Factory = Callable[[], type[Accelerator]]
"""Returns an accelerator's class; imports its dependencies only when the device is requested."""


@attrs.frozen(slots=True)
class DeviceInfo:
    """One device as `devices()` lists it."""

    name: str
    """The device's name."""
    usable: bool
    """True if it can be used here."""
    detail: str
    """Its full name, or the reason why it cannot be used."""
    source: str
    """"partita", "registered", or the package that offers it."""

    def __str__(self) -> str:
        return f"{self.name}: {'' if self.usable else 'not usable here: '}{self.detail}"


@attrs.frozen(slots=True)
class _Registration:
    factory: Factory
    source: str
    is_engine: bool = False
    """As in `Shipped`."""


FAMILIES.update(PASSES)

_guard = Guard(threading.RLock)
_registered: dict[str, _Registration] = {}
_instances: dict[str, Accelerator] = {}


def register_accelerator(cls: type[Accelerator], *, replace: bool = False) -> type[Accelerator]:
    """Registers a device under its class's `name` (also as a decorator), and a backend of that name with it."""
    if not (isinstance(cls, type) and issubclass(cls, Accelerator)):
        cause = f"{cls!r} is not a class derived from Accelerator"
        raise AcceleratorError(cause, where="register_accelerator", remedy="Give the class itself")
    name = cls.name
    if not is_device_name(name):
        raise AcceleratorError(
            f"an accelerator's name is letters, digits, '-' and '_', not {name!r}",
            where=cls.__name__,
            remedy="Set the class attribute name; HETERO stands for several devices",
        )
    with _guard.lock:
        if name in _entries() and not replace:
            cause = f"there is a device {name!r} already"
            raise AcceleratorError(cause, where=cls.__name__, remedy="Choose another name, or pass replace=True")
        if has_properties(name):
            warn_of_two(name)
        _registered[name] = _Registration(lambda: cls, "registered")
        _instances.pop(name, None)
    return cls


def is_device_name(name: object) -> bool:
    """True for a valid device name. Other characters have a meaning in device strings, and HETERO and MULTI stand for several."""
    return isinstance(name, str) and name.replace("_", "").replace("-", "").isalnum() and name.upper() not in (HETERO, "MULTI")


def unregister_accelerator(name: str) -> None:
    """Unregisters a device that was registered by call."""
    with _guard.lock:
        if _registered.pop(name, None) is None:
            raise UnknownDevice(f"no device {name!r} was registered by call")
        _instances.pop(name, None)


def accelerator(name: str) -> Accelerator:
    """The single instance of a device; raises AcceleratorUnavailable if it cannot be used, UnknownDevice if there is none."""
    if not isinstance(name, str):
        raise UnknownDevice(f"a device is named by a string, not by {name!r:.80}")
    with _guard.lock:
        if name in _instances:
            return _instances[name]
        entry = _WHOLE if name == HETERO else _entry(name)
        if entry is None:
            cut = f"It is a backend of properties: pt.apply_pass(g, 'PartitionGraph', backend={name!r}). {REGISTER}"
            remedy = cut if has_properties(name) else meant_device(name, sorted(_entries()))
            raise UnknownDevice(f"there is no device {name!r}", remedy=remedy)
        instance = _instances[name] = _instance_of(name, entry)
        return instance


def is_known(name: str) -> bool:
    """True if there is a device of that name. Installed packages are searched only for a name that is not found otherwise."""
    return name in _registered or name in _SHIPPED or name in _entries()


def device_names() -> list[str]:
    """The names of all devices, usable here or not."""
    with _guard.lock:
        return list(_entries())


def devices() -> list[DeviceInfo]:
    """All devices: those usable here, and the others with the reason. A broken plugin is listed with its error."""
    return [info for name, entry in list(_entries().items()) for info in _infos(name, entry)]


def _property_factory(name: str) -> PropertyFactory:
    """The factory of a device's property, for the backend of the same name."""

    def device_property() -> SubgraphProperty:
        return accelerator(name).subgraph_property()

    return device_property


def _infos(name: str, entry: _Registration) -> list[DeviceInfo]:
    """The device, and those beneath it."""
    try:
        detail = str(accelerator(name).get_metric("FULL_DEVICE_NAME"))
        beneath = accelerator(name).beneath()
    except AcceleratorError as error:
        return [DeviceInfo(name, False, str(error), entry.source)]
    except Exception as error:  # noqa: BLE001  a plugin may raise anything
        return [DeviceInfo(name, False, f"its metrics raise {error_in_words(error)}", entry.source)]
    others = [DeviceInfo(f"{name}.{inner}", usable, about, entry.source) for inner, usable, about in beneath]
    return [DeviceInfo(name, True, detail, entry.source), *others]


def _instance_of(name: str, entry: _Registration) -> Accelerator:
    """An instance; any exception of a plugin becomes a BrokenPackage."""
    where = f"device {name!r} of {entry.source}"
    try:
        cls = entry.factory()
        if not (isinstance(cls, type) and issubclass(cls, Accelerator)):
            raise BrokenPackage(f"{cls!r} is not a class derived from Accelerator", where=where)
        if not is_device_name(name) and name != HETERO:
            raise BrokenPackage("a device's name is letters, digits, '-' and '_', and not HETERO", where=where)
        instance = cls()
        if not hasattr(instance, "_config"):
            raise BrokenPackage("its constructor does not call super().__init__()", where=where)
        return instance
    except AcceleratorError:
        raise
    except (Exception, SystemExit) as error:  # a plugin may raise anything
        raise BrokenPackage(error_in_words(error), where=where, remedy="Its package is broken: ask its authors") from error


def _shipped(device: Shipped) -> _Registration:
    return _Registration(lambda: getattr(importlib.import_module(device.module), device.name), "partita", device.is_engine)


_WHOLE = _shipped(SHIPPED[HETERO])
_SHIPPED = {name: _shipped(device) for name, device in SHIPPED.items() if name != HETERO}


def engines() -> list[str]:
    """The shipped engines, those that compile faster first."""
    return [name for name, entry in _SHIPPED.items() if entry.is_engine]


def _entries() -> dict[str, _Registration]:
    """All devices by name; those registered by call take precedence, then the shipped ones."""
    offered = {point.name: _Registration(point.load, _package(point)) for point in _points()}
    return {**offered, **_SHIPPED, **_registered}


def _entry(name: str) -> _Registration | None:
    """The device of that name. Installed packages are searched only for a name that is not found otherwise."""
    return _registered.get(name) or _SHIPPED.get(name) or _entries().get(name)


def _points() -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points

    yield from entry_points(group=ENTRY_POINTS)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


add_backend_source(BackendSource(device_names, _property_factory))
