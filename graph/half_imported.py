"""A fork while another thread imports a module.

The child has that module half, and nobody there who will finish it: it cannot be imported again. Therefore a fork waits until no
other thread is importing, and lets none begin. This holds from the import of this module on, which is the first of ours."""

from __future__ import annotations

import _imp
import concurrent.futures.thread  # noqa: F401  see below
import logging  # noqa: F401
import os
import sys
import time
from contextlib import suppress
from types import FrameType, ModuleType

PATIENCE = 30.0
"""Seconds that a fork waits for imports, of which one may itself wait for what the forking thread imports."""

LONGEST_PAUSE = 0.05
"""Seconds between two looks: each takes milliseconds from the threads that import, of the whole modules of TVM, say."""


def _wait() -> None:
    """Take the lock without which no import begins, at a moment when none has begun."""
    own = _imported_by(sys._getframe())
    end, pause = time.monotonic() + PATIENCE, 0.001
    _imp.acquire_lock()
    while _half_imported() - own and time.monotonic() < end:
        _imp.release_lock()
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
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


# What is registered last runs first. It has to hold no lock while it waits for other threads: logging and concurrent.futures,
# which take their own before a fork, are registered already.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait, after_in_parent=_imp.release_lock, after_in_child=_released_in_child)
