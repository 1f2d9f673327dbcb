"""TVM with its compiler, imported at the first compilation, in a third of the time of `import tvm`.

Half of that time is spent in hooks for GPUs, which look up a hundred names that TVM does not know. For each error TVM walks the
stack, and for the first one it reads the symbols of all its libraries. In addition, fifty modules each list the names of all
2,000 functions."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from partita.accelerators.errors import AcceleratorUnavailable
from partita.accelerators.process.forking import Guard
from partita.accelerators.tvm.run.runtime import EXTRA, PACKAGE, function, has_backend, package_folder, runtime, without_torch
from partita.graph.gc_pause import collector_paused

__all__ = ["OLDEST", "PACKAGE", "compiling", "function", "part", "structural_map", "tvm", "why_no_compiler"]

OLDEST = (0, 27)
"""Oldest version with the module layout that this folder expects."""

compiling = Guard(threading.RLock)
"""Lock of all compilations: TVM's builders and passes have global state, so only one thread may compile at a time."""


@cache
def tvm() -> Any:
    """The `tvm` package."""
    runtime()
    try:
        with short_import():
            module = importlib.import_module("tvm")
    except ImportError as error:
        raise AcceleratorUnavailable(
            f"the package {PACKAGE} cannot be imported ({error})", remedy=f"pip install {PACKAGE}"
        ) from error
    version = tuple(int(part) for part in module.__version__.split(".")[:2] if part.isdigit())
    if version < OLDEST:
        raise AcceleratorUnavailable(
            f"TVM {module.__version__} is too old", remedy=f"pip install '{PACKAGE}>={OLDEST[0]}.{OLDEST[1]}'"
        )
    logging.getLogger("tvm").setLevel(logging.ERROR)
    return module


@cache
def part(name: str) -> Any:
    """A module of TVM's: `part("relax")` is `tvm.relax`."""
    tvm()
    return importlib.import_module(f"tvm.{name}")


def structural_map(thing: Any, changes: list[tuple[Any, Callable[[Any], Any]]]) -> Any:
    """The TensorIR function, statement or expression with parts replaced. `changes` pairs classes of parts with functions."""
    tvm()  # loads TVM's library, which has to come before tvm_ffi is used
    return importlib.import_module("tvm_ffi").structural_map(thing, changes)


@cache
def why_no_compiler() -> str | None:
    """The reason why TVM cannot compile here (it may still run compiled models), or None."""
    if package_folder() is None or not has_backend("tvm_compiler"):
        return f"TVM's compiler is not installed here, only its runtime: pip install {PACKAGE}"
    return None


HOOKS = "TVM_DEVICE_BACKEND_AUTOLOAD"
"""Environment variable; TVM imports no hooks if it is 0."""

_importing = Guard(threading.RLock)
"""Lock: only one thread at a time may patch what TVM's import reads."""


@contextmanager
def short_import() -> Iterator[None]:
    """A context in which importing TVM skips its hooks and torch, lists the names of TVM's functions once, and pauses garbage
    collection."""
    has_backend(EXTRA)  # Without this library TVM lacks some of the types that it imports.
    with _importing.lock, without_torch(), collector_paused(), _hooks_left_out(), _names_listed_once():
        yield


def gpu_hooks(kind: str) -> None:
    """Load TVM's hooks for a kind of GPU, "cuda" or "opencl", before code generation.

    TVM marks them as loaded when loading begins; the lock makes a second thread wait until it ends."""
    with _importing.lock:
        importlib.import_module("tvm.backend").load(kind)


@contextmanager
def _hooks_left_out() -> Iterator[None]:
    """A context in which importing TVM loads no hooks, unless the environment variable is set."""
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
    """A context in which the names of TVM's functions are listed again only if their number has changed."""
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
