"""Defines an accelerator: the class that a plugin derives from, its configuration keys, its registration, and queries.

The tables name the modules of the devices that come with Partita. `partita.accelerators` fills them; nothing of a device is
imported before it is requested."""

from typing import NamedTuple


class Shipped(NamedTuple):
    """The class of a device that comes with Partita."""

    module: str
    """The module that defines it."""
    name: str
    """Its name there."""
    is_engine: bool = False
    """True for a device that runs models by the package of its name, which compiles them in a fraction of a second."""


SHIPPED: dict[str, Shipped] = {}
"""The devices that come with Partita by name, the last resort last; of the engines, the one that compiles faster first. HETERO,
which has metrics and a configuration like a device and runs nothing itself, is among them."""

PASSES: dict[str, str] = {}
"""The modules that register the passes of these devices, by family of passes."""
