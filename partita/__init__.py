"""Partita decides which accelerator runs which part of a neural network, and compiles it.

    import partita as pt
    g = pt.load("zoo:resnet50")
    g = pt.apply_pass(g, "Default")

The names come from `partita.names`, which is imported on first use. `load` and `compile` do without it, so that some models
answer before the rest is imported."""

import concurrent.futures.thread  # noqa: F401  other code imports it, which fails once the main thread has ended
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partita.names import *  # noqa: F403

_EARLY = {"compile": "partita.accelerators", "load": "partita.accelerators"}
"""Names that need no import of `partita.names`, and the packages that they come from."""

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _EARLY:
        return globals().setdefault(name, getattr(import_module(_EARLY[name]), name))
    names = import_module("partita.names")

    if name != "__all__" and name not in names.__all__:
        hint = import_module("partita.accelerators.interface.habits").NAMES.get(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{f'. {hint}' if hint else ''}")
    value = globals()[name] = getattr(names, name)
    return value


def __dir__() -> list[str]:
    names = import_module("partita.names")

    return sorted({*globals(), *names.__all__})
