"""A fork while another thread imports a module.

The child has that module half, and nobody there who will finish it: it cannot be imported again. Therefore a fork waits until no
other thread is importing, and lets none begin."""

from __future__ import annotations

import _imp
import os
import sys
import time
from contextlib import suppress
from types import FrameType, ModuleType

PATIENCE = 30.0
"""Seconds that a fork waits for imports, of which one may itself wait for what the forking thread imports."""


def forks_wait_for_imports() -> None:
    """Have each fork of this process wait for the imports of its other threads, from now on; called once."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_wait, after_in_parent=_imp.release_lock, after_in_child=_released_in_child)


def _wait() -> None:
    """Take the lock without which no import begins, at a moment when none has begun."""
    own = _imported_by(sys._getframe())
    end = time.monotonic() + PATIENCE
    _imp.acquire_lock()
    while _half_imported() - own and time.monotonic() < end:
        _imp.release_lock()
        time.sleep(0.001)
        _imp.acquire_lock()


def _half_imported() -> set[str]:
    """The modules that some thread is importing. None is asked: one that is loaded when it is first used would be loaded now."""
    modules = [(name, module) for name, module in list(sys.modules.items()) if issubclass(type(module), ModuleType)]
    specs = ((name, object.__getattribute__(module, "__dict__").get("__spec__")) for name, module in modules)
    return {name for name, spec in specs if getattr(spec, "_initializing", False)}


def _imported_by(frame: FrameType | None) -> set[str]:
    """The modules that this thread is importing: those whose text it is running."""
    names = set()
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            names.add(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    return names


def _released_in_child() -> None:
    with suppress(RuntimeError):  # the child's lock may be free already
        _imp.release_lock()
