"""Execution providers in libraries of their own, which onnxruntime loads: their registration, and the nodes that they take."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import attrs

from partita.accelerators.engines.onnxruntime.session_options import reason
from partita.accelerators.errors import AcceleratorUnavailable, BadConfig
from partita.accelerators.interface.keys import BadValue
from partita.accelerators.process.forking import Guard

RECORDED = "session.record_ep_graph_assignment_info"
"""The session option by which onnxruntime keeps the provider of each node."""

PREFIX = "onnxruntime-ep-"
"""The names of the packages that bring a provider begin so, by convention."""

_guard = Guard()
_failures: dict[str, str] = {}
"""The reason why a provider that was configured in this process cannot be used, by its name."""


@attrs.frozen(slots=True)
class Provider:
    """A provider as the configuration of a device describes it."""

    name: str
    """onnxruntime's name for it."""
    library: str | None
    """The path of its library; None if it is registered already."""
    device: str
    """EP_DEVICE."""
    options: tuple[tuple[str, str], ...]
    """EP_OPTIONS."""

    def devices(self, engine: Any) -> list[Any]:
        """The one of onnxruntime's devices on which it runs, as a list; AcceleratorUnavailable with the reason if there is
        none."""
        with _guard.lock:
            try:
                found = self._found(engine)
            except AcceleratorUnavailable as error:
                _failures[self.name] = error.cause
                raise
            _failures.pop(self.name, None)
            return found

    def _found(self, engine: Any) -> list[Any]:
        if self.library is not None:
            self._register(engine, self.library)
        known = list(engine.get_ep_devices())
        own = [one for one in known if one.ep_name == self.name]
        chosen = [one for number, one in enumerate(own) if self.device in (str(number), _hardware(one))][:1]
        if own and not chosen:
            listed = ", ".join(f"{number} ({_hardware(one)})" for number, one in enumerate(own))
            raise self._unusable(f"the provider has no device {self.device!r}", f"Its devices are {listed}")
        if chosen:
            return chosen
        offered = sorted({one.ep_name for one in known if _library_of(one) is not None and _library_of(one) == self.library})
        if offered:
            raise self._unusable(f"its library offers no provider {self.name!r}", f"Set EP_NAME to {' or '.join(offered)}")
        if self.library is not None:
            seen = ", ".join(dict.fromkeys(f"{one.device.vendor} {_hardware(one)}" for one in known))
            cause = f"its library is loaded, and offers no device for the hardware that onnxruntime sees here: {seen}"
            raise self._unusable(cause, "Use it on hardware that it supports")
        remedy = "Set EP_LIBRARY or EP_PACKAGE in its configuration, which no file may contain"
        raise self._unusable("no provider of that name is registered in this process", remedy)

    def _register(self, engine: Any, library: str) -> None:
        """Registers the library once in this process, unless somebody else has."""
        if any(_library_of(one) == library for one in engine.get_ep_devices()) or library in _registered:
            return
        try:
            engine.register_execution_provider_library(self.name, library)
        except Exception as error:  # noqa: BLE001  onnxruntime's errors have no common base class
            raise self._unusable(f"onnxruntime cannot load its library: {reason(error)}", "Install what it depends on") from None
        _registered.add(library)

    def _unusable(self, cause: str, remedy: str) -> AcceleratorUnavailable:
        return AcceleratorUnavailable(cause, where=f"provider {self.name!r} of onnxruntime", remedy=remedy)

    def use(self, options: Any, engine: Any) -> None:
        """Lets sessions with these options give nodes to the provider, and record which it takes."""
        options.add_provider_for_devices(self.devices(engine), dict(self.options))
        options.add_session_config_entry(RECORDED, "1")


_registered: set[str] = set()
"""The libraries that were registered here; one that offers no device does not show in onnxruntime's list."""


def provider_of(config: Mapping[str, Any]) -> Provider | None:
    """The provider that the configuration names; None if it is PROVIDER, which onnxruntime was built with."""
    name, library, package = config["EP_NAME"], config["EP_LIBRARY"], config["EP_PACKAGE"]
    if package is not None:
        library = os.path.abspath(_imported(package).get_library_path())
    options = tuple((key, str(value)) for key, value in config["EP_OPTIONS"].items())
    return None if name is None else Provider(name, library, config["EP_DEVICE"], options)


def check_together(config: Mapping[str, Any], where: str) -> None:
    """Raises BadConfig if the keys of a provider contradict each other."""
    library, package = config["EP_LIBRARY"], config["EP_PACKAGE"]
    if library is not None and package is not None:
        raise BadConfig("both EP_LIBRARY and EP_PACKAGE are set", where=where, remedy="Set one of them")
    if (library or package or config["EP_OPTIONS"]) and not config["EP_NAME"]:
        remedy = "Set EP_NAME, or name the device onnxruntime.NAME"
        raise BadConfig("the provider has no name, which files that are exported need", where=where, remedy=remedy)


def _imported(package: str) -> Any:
    """The package; its convention is a function `get_library_path`."""
    where = f"EP_PACKAGE {package!r} of device 'onnxruntime'"
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        cause = f"it cannot be imported: {error}"
        raise AcceleratorUnavailable(cause, where=where, remedy=f"Install it: pip install {package.replace('_', '-')}") from None
    if not hasattr(module, "get_library_path"):
        remedy = "Set EP_LIBRARY to the path of its library"
        raise AcceleratorUnavailable("it has no function get_library_path", where=where, remedy=remedy)
    return module


def library_path(value: Any) -> str | None:
    """Reads a path, or None."""
    if value is None or isinstance(value, (str, os.PathLike)):
        return None if value is None else os.path.abspath(value)
    raise BadValue("Give the path of a shared library")


def package_name(value: Any) -> str | None:
    """Reads the name of a module, or None."""
    if value is None or (isinstance(value, str) and all(part.isidentifier() for part in value.split("."))):
        return value
    raise BadValue('Give the name of an installed package, as "onnxruntime_ep_openvino"')


def is_registered(device: Any) -> bool:
    """True for a device of a library that was registered here."""
    return _library_of(device) in _registered


def listed(engine: Any) -> Iterator[tuple[str, bool, str]]:
    """Each provider beside onnxruntime's own ones: its name, if it is usable, and its devices or the reason why not."""
    by_name: dict[str, list[Any]] = {}
    for one in engine.get_ep_devices():
        if _library_of(one) is not None:
            by_name.setdefault(one.ep_name, []).append(one)
    for name, own in by_name.items():
        version = own[0].ep_metadata.get("version", "")
        yield name, True, f"{name} {version} of {own[0].ep_vendor}, on {', '.join(map(_hardware, own))}"
    with _guard.lock:
        failures = [(name, why) for name, why in _failures.items() if name not in by_name]
    yield from ((name, False, why) for name, why in failures)
    loaded = {_library_of(one) or "" for own in by_name.values() for one in own}
    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"]).lower().replace("_", "-")
        module = name.replace("-", "_")
        if name.startswith(PREFIX) and not any(f"{os.sep}{module}{os.sep}" in path for path in loaded):
            yield name.removeprefix(PREFIX), False, f"it is installed, and not loaded: set EP_PACKAGE to {module!r}"


def assigned(session: Any) -> list[tuple[str, Sequence[Any]]]:
    """The provider of each subgraph, and the subgraph's nodes."""
    return [(part.ep_name, part.get_nodes()) for part in session.get_provider_graph_assignment_info()]


def _library_of(device: Any) -> str | None:
    path = dict(device.ep_metadata).get("library_path")
    return None if path is None else os.path.abspath(path)


def _hardware(device: Any) -> str:
    return str(device.device.type).rpartition(".")[2]
