"""TVM with its compiler, imported when something is first compiled."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from partita.accelerators.errors import AcceleratorUnavailable
from partita.accelerators.process.forking import Guard
from partita.accelerators.tvm.machine.fast_import import short_import
from partita.accelerators.tvm.run.runtime import PACKAGE, function, has_backend, package_folder, runtime

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
    """The TensorIR function, statement or expression with each part of one of these kinds replaced by what its change returns."""
    tvm()  # loads TVM's library, which has to come before tvm_ffi is used
    return importlib.import_module("tvm_ffi").structural_map(thing, changes)


@cache
def why_no_compiler() -> str | None:
    """Why TVM cannot compile here, though it may run models that were compiled before; None if it can."""
    if package_folder() is None or not has_backend("tvm_compiler"):
        return f"TVM's compiler is not installed here, only its runtime: pip install {PACKAGE}"
    return None
