"""Forks while another thread imports a module.

The child inherits a half-imported module, or only its held lock, and no thread to finish it: the module can never be
imported there. Therefore a fork waits until no other thread is importing, and blocks new imports meanwhile. This works from
the import of this module on, which is the first of ours."""

from __future__ import annotations

import _frozen_importlib as machinery
import _imp
import concurrent.futures.thread  # noqa: F401  see below
import logging  # noqa: F401
import os
import time
from contextlib import suppress
from threading import get_ident
from typing import Any

PATIENCE = 30.0
"""Seconds that a fork waits for imports at most: an import may itself wait for one of the forking thread."""

LONGEST_PAUSE = 0.05
"""Maximum seconds between two checks."""


def _wait() -> None:
    """Takes the global import lock at a moment when no other thread is importing."""
    end, pause = time.monotonic() + PATIENCE, 0.001
    _imp.acquire_lock()
    while any(lock.owner not in (None, get_ident()) for lock in _locks().values()) and time.monotonic() < end:
        _imp.release_lock()
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        _imp.acquire_lock()


def _locks() -> dict[str, Any]:
    """The lock of each module that is being imported. Its thread holds it from the search for the module until it is set in
    its package, which is longer than the module is in `sys.modules` but not initialized."""
    references = list(machinery._module_locks.items())  # type: ignore[attr-defined]
    return {name: lock for name, reference in references if (lock := reference()) is not None}


def _begin_child() -> None:
    """Drops locks of threads that do not exist in the child: one may have been taken after the check, or PATIENCE was over."""
    for name, lock in _locks().items():
        if lock.owner != get_ident():
            machinery._module_locks.pop(name, None)  # type: ignore[attr-defined]
    with suppress(RuntimeError):  # the child's lock may be free already
        _imp.release_lock()


# Hooks run in reverse order of registration. No lock may be held while this waits for other threads: logging and futures,
# which take their own before a fork, are registered already.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait, after_in_parent=_imp.release_lock, after_in_child=_begin_child)
