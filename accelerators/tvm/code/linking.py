"""Object files and the virtual machine's program as one shared library, which is loaded at once.

Without a linker TVM makes the machine code a second time in memory when a kernel first runs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from accelerators.errors import NotSupported
from accelerators.tvm.code.codegen import written
from accelerators.tvm.machine.library import compiling, function, part, tvm
from accelerators.tvm.machine.tvm_errors import first_line
from accelerators.tvm.run.pool import pool_object
from accelerators.tvm.run.runtime import load_library

_OPTIONS = ["-shared", "-fPIC", "-pthread", *(["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ())]

NEEDED = "It needs a C++ compiler: g++ or clang++ on the PATH, or CXX"


@cache
def compiler() -> tuple[str, ...]:
    """The command of the compiler that TVM finds, or CXX names, which may hold options:

    `ccache g++`. Empty where there is no compiler.
    """
    command_name = part("support.cc").get_cc() or ""
    command = [command_name] if shutil.which(command_name) else shlex.split(command_name)
    return tuple(command) if command and shutil.which(command[0]) else ()


def can_link() -> bool:
    """Is there a linker?"""
    return os.name == "posix" and bool(compiler())


def _share(files: Sequence[Path], path: Path) -> None:
    done = subprocess.run([*compiler(), *_OPTIONS, "-o", path, *files], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr or f"{compiler()[0]} fails")


def link(executable: Any, objects: Iterable[bytes], target: Any) -> bytes:
    """The shared library of an executable that has no kernels imported, of these, and of the threads that they run on."""
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        path = Path(folder) / "library.so"
        try:
            with compiling.lock:
                files = [_program(executable, target, Path(folder))]
            threads = pool_object(*compiler())
            for number, code in enumerate([*objects, *([threads] if threads else ())]):
                files.append(Path(folder) / f"kernels{number}.o")
                files[-1].write_bytes(code)
            _share(files, path)
        except Exception as error:
            raise NotSupported(f"TVM cannot link its kernels into a library: {first_line(error)}", remedy=NEEDED) from error
        return path.read_bytes()


def load(library: bytes) -> Any:
    """The library in this process; its file is gone once it is mapped."""
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        path = Path(folder) / "library.so"
        path.write_bytes(library)
        try:
            return load_library(str(path))
        except Exception as error:
            cause = f"the library that was linked of its kernels does not load: {first_line(error)}"
            raise NotSupported(cause, remedy="TMPDIR must name a folder that code may run from") from error


def _program(executable: Any, target: Any, folder: Path) -> Path:
    """The virtual machine's program as an object file. It says that its kernels are in the library that it is loaded from,
    because an empty module of machine code stands for them."""
    empty = function("target.build.llvm")(tvm().IRModule({}), target)
    executable.mod.import_module(empty)
    said = str(empty.get_function("_get_target_string")())
    path = folder / "program.o"
    path.write_bytes(written(part("runtime._ffi_api").ModulePackImportsToLLVM(executable.mod, False, said, ""), folder))
    return path
