"""The import of TVM in a third of its time.

Half of the import is hooks for GPUs. Names that TVM does not know are errors to it, for each of which it walks the stack, and the
first time reads the symbols of all its libraries: the hooks ask for a hundred such names. And fifty modules each
ask for the names of all functions, of which there are 2,000."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from partita.accelerators.process.forking import Guard
from partita.accelerators.tvm.run.runtime import EXTRA, has_backend, without_torch
from partita.graph.pauses import collector_paused

HOOKS = "TVM_DEVICE_BACKEND_AUTOLOAD"
"""Where this is 0 in the environment TVM imports no hooks."""

_importing = Guard(threading.RLock)
"""One thread at a time changes what TVM's import reads, and puts it back."""


@contextmanager
def short_import() -> Iterator[None]:
    """Inside, TVM is imported without its hooks and torch, and with its functions' names listed once, and Python collects no
    garbage."""
    has_backend(EXTRA)  # Without this library TVM does not know some of the types that it imports.
    with _importing.lock, without_torch(), collector_paused(), _hooks_left_out(), _names_listed_once():
        yield


def gpu_hooks(kind: str) -> None:
    """Load what TVM has to know of GPUs of a kind, "cuda" or "opencl", before it makes code for them.

    TVM calls them loaded when it begins to load them, so that a second thread waits here until they are."""
    with _importing.lock:
        importlib.import_module("tvm.backend").load(kind)


@contextmanager
def _hooks_left_out() -> Iterator[None]:
    """Inside, the import of TVM loads no hooks, unless the environment says whether it does."""
    if HOOKS in os.environ:
        yield
        return
    os.environ[HOOKS] = "0"
    try:
        yield
    finally:
        os.environ.pop(HOOKS, None)


@contextmanager
def _names_listed_once() -> Iterator[None]:
    """Inside, the names of TVM's functions are listed anew only where there are more of them than before."""
    registry: Any = importlib.import_module("tvm_ffi.registry")
    counting = registry.get_global_func("ffi.FunctionListGlobalNamesFunctor", allow_missing=True)
    if counting is None:
        yield
        return
    listed, known = registry.list_global_func_names, list[str]()

    def names() -> list[str]:
        nonlocal known
        if counting()(-1) != len(known):
            known = listed()
        return known

    registry.list_global_func_names = names
    try:
        yield
    finally:
        registry.list_global_func_names = listed
