"""The options of a provider: devices and their configuration, as a program or a session gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from partita.accelerators.errors import BadConfig, UnknownKey
from partita.accelerators.interface.device_list import DEFAULT, asked_devices
from partita.accelerators.interface.settings import check_config, read_config

REMEDY = 'A session\'s options are "devices", "config" (JSON), "recompile", or DEVICE.KEY, such as "cpu.NUM_THREADS"'


@attrs.frozen
class ProviderOptions:
    """The devices of a provider, and what they are configured with."""

    devices: str = DEFAULT
    """The devices, as `compile` takes them."""
    config: Mapping[str, Any] = attrs.field(factory=dict)
    """Their configuration, as `compile` takes it."""
    recompile: bool = False
    """True if a compiled model that does not fit here is compiled again."""
    key: bytes | None = None
    """The key that signs compiled models, and that those which are read must be signed with."""

    def checked(self) -> ProviderOptions:
        """The same options; an error if a device or a key of theirs does not exist."""
        read_config(check_config(self.config, "option config"), asked_devices(self.devices))
        return self

    def of_session(self, name: str, entries: Mapping[str, str]) -> ProviderOptions:
        """The options of a session of the provider with this name, whose own override these. `entries` are the session's."""
        prefix = f"ep.{name.lower()}."
        given = {key.removeprefix(prefix): value for key, value in entries.items() if key.startswith(prefix)}
        config = {} if "devices" in given else _copied(self.config)
        devices = given.pop("devices", self.devices)
        recompile = given.pop("recompile", "1" if self.recompile else "0")
        if recompile not in ("0", "1"):
            raise BadConfig(f'recompile cannot be {recompile!r}: give "0" or "1"', where=f"options of {name}")
        config.update(_json(given.pop("config", "{}"), name))
        for key, value in given.items():
            device, _, setting = key.rpartition(".")
            if not device:
                raise UnknownKey(f"there is no option {key!r}", where=f"options of {name}", remedy=REMEDY)
            own = config.setdefault(device, {})
            if not isinstance(own, dict):
                raise BadConfig(f"config of {device!r} is not a dictionary", where=f"options of {name}", remedy=REMEDY)
            own[setting] = value
        return attrs.evolve(self, devices=devices, config=config, recompile=recompile == "1").checked()


def _copied(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise BadConfig(f"config is not JSON: {error}", where=f"options of {name}", remedy=REMEDY) from None
    if not isinstance(read, dict):
        raise BadConfig("config is not a dictionary", where=f"options of {name}", remedy=REMEDY)
    return read
