"""TVM itself, imported when a device is first asked for."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from functools import cache
from typing import Any

from accelerators.errors import AcceleratorUnavailable

PACKAGE = "apache-tvm"
"""What to install."""

OLDEST = (0, 27)
"""The oldest version whose modules are where this folder looks for them."""

lock = threading.RLock()
"""TVM's builders and passes keep state of their own: one thread compiles at a time."""


@cache
def tvm() -> Any:
    """The `tvm` package.

    TVM pins each of its threads to a core, and a pinned thread waits for whoever else uses that core: with one other busy
    program on the machine a model ran three times slower. Quiet machines see no difference, so the threads are left free,
    unless TVM_BIND_THREADS is set. TVM reads it when its first parallel kernel starts, hence before the import."""
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    try:
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


def part(name: str) -> Any:
    """A module of TVM's: `part("relax")` is `tvm.relax`."""
    tvm()
    return importlib.import_module(f"tvm.{name}")


def function(name: str) -> Any:
    """One of TVM's registered functions; None if this build lacks it."""
    tvm()
    return importlib.import_module("tvm_ffi").get_global_func(name, allow_missing=True)
