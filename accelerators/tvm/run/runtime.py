"""TVM's runtime libraries, loaded without the `tvm` package, and the memory that its virtual machines keep. Compiled models need
nothing else, and they load at once, whereas the package takes a second to import.

Intermediate values go back to a pool, which reuses memory only for calls of exactly the same size, so that each new size makes
the pool grow. Therefore the pool is emptied once calls of many sizes have left more in it than two calls of the largest size
need. Memory in use is not part of the pool."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from partita.accelerators.errors import AcceleratorUnavailable
from partita.accelerators.process.forking import Guard
from partita.accelerators.tvm.run.pool import serving

PACKAGE = "apache-tvm"
"""The package to install."""

SPINS = 10_000
"""Number of times that a thread looks for work before it sleeps: a few milliseconds."""

OURS = "+"
"""Prefix of a number of threads that the user did not set, here or in the parent process."""

EXTRA = "tvm_runtime_extra"
"""TVM's library of functions that some kernels call by name, mainly for sorting."""

_CONTRIB = b"tvm.contrib."
"""Prefix of these functions' names."""

POOLED = 2
"""The virtual machine's allocator that keeps memory for later."""


@contextmanager
def without_torch() -> Iterator[None]:
    """A context in which this thread does not find torch, unless it is already imported: `tvm_ffi` would import it wherever it
    is installed, which takes seconds."""
    thread, name = threading.get_ident(), "torch"

    class Absent:
        """Finder that hides torch from this thread."""

        @staticmethod
        def find_spec(wanted: str, *rest: object) -> None:
            """None, so that other finders are asked; ModuleNotFoundError for torch."""
            if wanted == name and threading.get_ident() == thread:
                raise ModuleNotFoundError("it is not needed here", name=name)

    if name in sys.modules:
        yield
        return
    finder: Any = Absent
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@cache
def runtime() -> Any:
    """The `tvm_ffi` package with TVM's runtime loaded.

    Three environment variables are set unless they exist; TVM reads them when its first parallel kernel starts. TVM_BIND_THREADS:
    TVM pins each thread to a core, where it waits for any other program; with one busy program a model ran three times slower. On
    quiet machines there is no difference, so threads are not pinned. TVM_THREAD_POOL_SPIN_COUNT: an idle thread would poll
    300,000 times before it sleeps, a tenth of a second that others could use; SPINS bridges the gaps within a model.
    TVM_NUM_THREADS: by default TVM starts half as many threads as there are processors; each model sets how many of them work."""
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_NUM_THREADS", f"{OURS}{os.cpu_count() or 1}")
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", str(SPINS))
    try:
        with without_torch():
            ffi = importlib.import_module("tvm_ffi")
        importlib.import_module("tvm_ffi.libinfo").load_lib_ctypes(
            "tvm", "tvm_runtime", "RTLD_GLOBAL", extra_lib_paths=library_folders()
        )
    except (ImportError, OSError, RuntimeError) as error:
        raise AcceleratorUnavailable(
            f"TVM's runtime cannot be loaded ({' '.join(str(error).split())[:200]})",
            remedy=f"pip install {PACKAGE}; for the runtime alone: pip install apache-tvm-ffi, and TVM_LIBRARY_PATH"
            " names the folder of libtvm_runtime.so",
        ) from error
    return ffi


def library_folders() -> list[Path]:
    """Folders that may contain TVM's shared libraries."""
    given = os.environ.get("TVM_LIBRARY_PATH")
    package = package_folder()
    return [*([Path(given)] if given else ()), *([package / "lib"] if package else ())]


@cache
def package_folder() -> Path | None:
    """Folder of the `tvm` package, found without importing it."""
    try:
        spec = importlib.util.find_spec("tvm")
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(folders[0]) if folders else None


@cache
def has_backend(name: str) -> bool:
    """Load another of TVM's libraries ("tvm_compiler"); False if it is missing or does not load."""
    runtime()
    info = importlib.import_module("tvm_ffi.libinfo")
    try:
        info.load_lib_ctypes("tvm", name, "RTLD_LOCAL", extra_lib_paths=library_folders())
    except (OSError, RuntimeError):
        return False
    return True


@cache
def version() -> str:
    """TVM's version; "" if only its libraries are installed."""
    package = package_folder()
    stated = package / "_version.py" if package else None
    if stated is not None and stated.exists():
        match = re.search(r"^__version__\b.*'([^']+)'\s*$", stated.read_text(), re.MULTILINE)
        if match:
            return match[1]
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def function(name: str) -> Any:
    """One of TVM's registered functions; None if the installed libraries lack it."""
    has_backend("tvm_compiler")
    return runtime().get_global_func(name, allow_missing=True)


def c_function(name: str) -> int:
    """The address of a function of TVM's C interface."""
    runtime()
    return ctypes.cast(ctypes.CDLL(None)[name], ctypes.c_void_p).value or 0


def include_folders() -> tuple[str, str]:
    """The folders of the headers of TVM's C interface."""
    info = importlib.import_module("tvm_ffi.libinfo")
    return info.find_include_path(), info.find_dlpack_include_path()


def load_library(path: str) -> Any:
    """A module of compiled code. It runs on our own threads, and is unloaded with its last reference.

    OSError if the library calls an undefined C function: TVM would load it, and the process would end at the call."""
    ffi = runtime()
    if not has_backend(EXTRA) and _CONTRIB in Path(path).read_bytes():
        cause = f"it calls functions of lib{EXTRA}.so (it sorts, or picks the largest), which is not installed here"
        raise AcceleratorUnavailable(cause, remedy=f"pip install {PACKAGE}, or copy that library beside libtvm_runtime.so")
    with serving.attached(path):
        return ffi.load_module(path, keep_module_alive=False)


# -- running ---------------------------------------------------------------------------------------------


class VirtualMachine:
    """Runs functions of a compiled module."""

    def __init__(self, module: Any) -> None:
        host = runtime().device("cpu", 0)
        self._module = module["vm_load_executable"]()
        self._module["vm_initialization"](host.dlpack_device_type(), host.index, POOLED)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._module[name]  # type: ignore[no-any-return]

    def watch(self, watcher: Callable[..., int]) -> None:
        """Call the watcher before and after each call that a function makes."""
        self._module["set_instrument"](watcher)


def view(tensor: Any, shape: Sequence[int], dtype: str) -> Any:
    """The tensor's memory with another shape and type."""
    return function("runtime.TVMTensorCreateView")(tensor, runtime().Shape(shape), runtime().dtype(dtype), 0)


LEAST = 32 << 20
"""Bytes that are kept in any case,"""

CALLS = 2
"""and as many as this number of calls of the largest size needs."""


class KeptMemory:
    """Estimate of what calls of different sizes have left in the pool."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._sizes = set[Hashable]()
        self._bytes = self._largest = 0

    def note(self, size: Hashable, needed: int) -> None:
        """Note the start of a call of this size, whose values need about this many bytes."""
        if size in self._sizes:
            return
        with self._guard.lock:
            if self._bytes + needed > max(LEAST, CALLS * max(needed, self._largest)):
                self._free()
            self._sizes.add(size)
            self._largest = max(needed, self._largest)
            self._bytes += needed

    def free(self) -> None:
        """Free all memory that is not in use."""
        with self._guard.lock:
            self._free()

    def _free(self) -> None:
        self._sizes.clear()
        self._bytes = self._largest = 0
        clear = runtime().get_global_func("vm.builtin.memory_manager.clear", allow_missing=True)
        if clear is not None:
            clear()


kept_memory = KeptMemory()
"""The pool is shared by all models of the process."""
