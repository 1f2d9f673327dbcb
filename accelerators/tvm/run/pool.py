"""Our own threads for kernels, in place of TVM's.

TVM's pool cuts each parallel loop into equal parts, one per thread, and waits for all of them. A core that is busy with another
program, or with spinning idle threads of another engine, delays every kernel. Our pool (explained in pool.c) is linked into each
library of kernels; the first one that is loaded serves all, so that they share their teams of threads. If it cannot be built,
kernels run on TVM's."""

from __future__ import annotations

import _ctypes
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from partita.accelerators.process.forking import Guard
from partita.passes.python_child import environment

SOURCE = Path(__file__).with_name("pool.c")

_LINUX = sys.platform.startswith("linux")

_SLOT = "__TVMBackendParallelLaunch"
"""Symbol in a library of the pointer to the function that starts parallel loops; TVM's loader sets it to its own function."""


class Serving:
    """Our threads in this process, and the library that contains their code, which is therefore never unloaded."""

    def __init__(self) -> None:
        self.everywhere = True
        """True if all kernels of this process run on our threads; False as soon as some are loaded that run on TVM's."""
        self.is_shared = False
        """True if machine code sets the number of threads too."""
        self._library: Any = None
        self._guard = Guard()

    @property
    def is_here(self) -> bool:
        """True if a library has brought our threads into this process."""
        return self._library is not None

    @contextmanager
    def attached(self, path: str) -> Iterator[None]:
        """A context in which TVM loads the library in this file. Its parallel loops then run on our threads. OSError if it
        calls an undefined function."""
        library = ctypes.CDLL(path)
        try:
            yield
            if not _LINUX:
                self.everywhere = False
                return
            with self._guard.lock:
                if self._library is None and hasattr(library, "partita_launch"):
                    self._library = library
                if hasattr(library, _SLOT):
                    self._replace(ctypes.c_void_p.in_dll(library, _SLOT))
        finally:
            if self._library is not library:
                _ctypes.dlclose(library._handle)

    def _replace(self, launcher: ctypes.c_void_p) -> None:
        if self._library is None:
            self.everywhere = False
        else:
            launcher.value = ctypes.cast(self._library.partita_launch, ctypes.c_void_p).value

    def use(self, count: int) -> None:
        """Set the number of threads for kernels that the calling thread starts."""
        if self.is_here:
            self._library.partita_threads(count)

    def setter(self) -> int:
        """The address of the function that sets this number, for machine code; 0 if our threads are not in this process."""
        self.is_shared = self.is_here
        return ctypes.cast(self._library.partita_threads, ctypes.c_void_p).value or 0 if self.is_here else 0


serving = Serving()


@cache
def pool_object(*compiler: str) -> bytes | None:
    """The pool as an object file for a linker; None if this compiler cannot build it, or on systems other than Linux."""
    if not _LINUX:
        return None
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        path = Path(folder) / "pool.o"
        return path.read_bytes() if compile_c(SOURCE, path, *compiler, "-c") else None


def compile_c(source: Path, path: Path, *command: str) -> bool:
    """Compile C with this command, which is followed by the source and the result's path; False if it fails."""
    whole = [*command, "-O2", "-fPIC", "-x", "c", str(source), "-o", str(path)]
    done = subprocess.run(whole, capture_output=True, check=False, env=environment(TMPDIR=str(path.parent)))
    return done.returncode == 0
