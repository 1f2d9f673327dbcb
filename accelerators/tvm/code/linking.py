"""Object files and the virtual machine's program linked into one shared library, which is loaded at once.

Without a linker TVM compiles the machine code a second time, in memory, when a kernel first runs."""

from __future__ import annotations

import errno
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from partita.accelerators.errors import CompileError, NotSupported
from partita.accelerators.tvm.code.codegen import written
from partita.accelerators.tvm.code.elf import check_symbols, data_object, is_elf, undefined_symbols
from partita.accelerators.tvm.machine.library import compiling, function, part, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.processor import is_here
from partita.accelerators.tvm.machine.tvm_errors import first_line
from partita.accelerators.tvm.run.pool import pool_object
from partita.accelerators.tvm.run.runtime import load_library
from partita.graph.programs import find_program
from partita.passes.python_child import environment, module_command

_ON_LINUX = sys.platform.startswith("linux")

_OPTIONS = ("-shared", "-fPIC", "-pthread", *(("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()))

_LIBRARIES = ("-nodefaultlibs", "-lm", "-lpthread", "-lc", "-lgcc")
"""Libraries that kernels and their threads call, in place of those that a C++ compiler adds: reading the symbols of the C++
library takes as long as all the rest of the link. On Arm, atomic operations are functions of GCC's own library."""

MISSING = "there is no linker here for its kernels"

NEEDED = "Install a C++ compiler (g++ or clang++ on the PATH, or CXX), or the package ziglang (pip install 'partita[linker]')"


_PROGRAM = "__tvm_ffi__library_bin"
"""Symbol under which TVM's loader looks for the virtual machine's program."""

COMPILERS = ("g++", "clang++", "c++", "gcc", "clang", "cc")
"""Compilers that link for C++, in order of preference."""


@attrs.frozen(slots=True)
class Tools:
    """Commands that make a library of object files."""

    link: tuple[str, ...]
    """Command that links; it is followed by "-o", the library, the object files, and `libraries`."""
    libraries: tuple[str, ...]
    """Arguments for the libraries that kernels call."""
    compile: tuple[str, ...]
    """Command that compiles C. If empty, kernels run on TVM's own threads."""


@cache
def tools(triple: str = "") -> Tools | None:
    """A C++ compiler, preferably the one that CXX names; else the linker and compiler of the package ziglang; else a linker
    alone. None if there is no linker. CXX is ignored for another machine, given by its triple."""
    if not is_here(triple):
        return _cross_tools(triple)
    compiler = _compiler()
    direct = _linker_of(compiler) if compiler and _ON_LINUX and not _named() else None
    if direct is not None:
        return direct
    if compiler:
        return Tools((*compiler, *_OPTIONS), _LIBRARIES if _ON_LINUX else (), compiler)
    if not _ON_LINUX:
        return None
    if has_ziglang():
        zig = tuple(module_command("ziglang"))
        return Tools((*zig, "ld.lld", "-shared"), (), (*zig, "cc", "-DPARTITA_PLAIN_SYMBOLS"))
    linker = find_program("ld") or find_program("ld.lld")
    return Tools((linker, "-shared"), (), ()) if linker else None


def _cross_tools(triple: str) -> Tools | None:
    """GCC's cross compiler, clang with the libraries for that machine, or ziglang; None if none of them is found."""
    arch, _, system = triple.partition("-")
    for command in ((f"{triple}-g++",), (f"{triple}-gcc",), ("clang++", f"--target={triple}"), ("clang", f"--target={triple}")):
        found = _linker_of(command) if "linux" in system and find_program(command[0]) else None
        if found is not None:
            return found
    if not has_ziglang():
        return None
    zig = tuple(module_command("ziglang"))
    if "linux" in system:
        return Tools((*zig, "ld.lld", "-shared"), (), (*zig, "cc", "-target", f"{arch}-linux-gnu", "-DPARTITA_PLAIN_SYMBOLS"))
    return Tools((*zig, "cc", "-target", "aarch64-macos", "-shared", "-Wl,-undefined,dynamic_lookup"), (), ())


def _linker_of(compiler: tuple[str, ...]) -> Tools | None:
    """The linker that the compiler calls, with glibc's math library and the compiler's own; None if these are not found. It
    takes a third of the compiler's time: that one starts three processes and reads the symbols of all of glibc."""
    options = ("prog-name=ld", "file-name=libm.so.6", "libgcc-file-name")
    linker, functions, own = (_output_of(*compiler, f"-print-{option}") for option in options)
    program = find_program(linker) if linker else None
    if program is None or not os.path.isfile(functions):
        return None
    libraries = tuple(filter(os.path.isfile, (functions, own)))
    return Tools((program, "-shared", "--as-needed"), libraries, (*compiler, "-DPARTITA_PLAIN_SYMBOLS"))


def _output_of(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    return "" if done.returncode else done.stdout.strip()


def _named() -> str | None:
    return os.environ.get("CXX") or os.environ.get("CC")


def _compiler() -> tuple[str, ...]:
    """The command in CXX or CC, possibly with options (`ccache g++`), or else the first compiler found; empty if none."""
    named = _named()
    if named:
        command = [named] if find_program(named) else shlex.split(named)
        return tuple(command) if command and find_program(command[0]) else ()
    return next(((name,) for name in COMPILERS if find_program(name)), ())


def has_ziglang() -> bool:
    """True if the package ziglang is installed, which contains a compiler and a linker."""
    return importlib.util.find_spec("ziglang") is not None


def can_link(triple: str = "") -> bool:
    """True if there is a linker."""
    return os.name == "posix" and tools(triple) is not None


def check_linker(triple: str) -> None:
    """Raises NotSupported if there is no linker for this triple's machine."""
    if not can_link(triple):
        raise no_linker(triple)


def no_linker(triple: str) -> NotSupported:
    """The error for a missing linker."""
    if is_here(triple):
        return NotSupported(MISSING, remedy=NEEDED)
    own = f"gcc-{triple.replace('_', '-')} (Debian's package), or " if "linux" in triple else ""
    return NotSupported(f"there is no linker here for {triple}", remedy=f"Install {own}ziglang (pip install 'partita[linker]')")


def share(path: str | Path, files: Sequence[str | Path], triple: str = "") -> None:
    """Link the object files for this triple's machine."""
    check_linker(triple)
    programs = tools(triple)
    assert programs is not None
    command = [*programs.link, "-o", path, *files, *programs.libraries]
    own = environment(TMPDIR=os.path.dirname(path))  # A linker's temporary files have room where its result has.
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
    if done.returncode:
        raise OSError(done.stderr or f"{programs.link[0]} fails")
    library = Path(path).read_bytes()
    check_symbols(undefined_symbols(library) if is_elf(library) else ())


class Sharing:
    """`share` as TVM calls it; the options are for TVM's own compilers and ignored.

    With the target triple TVM writes an object file even for a program of views alone, instead of C."""

    def __init__(self, triple: str = "") -> None:
        self.triple = triple

    def get_target_triple(self) -> str:
        """Target triple for which TVM writes the object file."""
        return self.triple or str(part("target.codegen").llvm_get_system_triple())

    def __call__(self, path: str | Path, files: Sequence[str | Path], **options: Any) -> None:
        share(path, files, self.triple)


def not_linked(error: Exception) -> NotSupported:
    """The error for kernels that could not be linked."""
    if _has_no_room(error):
        cause = f"there is no room to link its kernels: {first_line(error)}"
        return NotSupported(cause, remedy=f"Make room in {_temporary()}, or set TMPDIR to another folder")
    return NotSupported(f"TVM cannot link its kernels into a library: {first_line(error)}", remedy=NEEDED)


def _has_no_room(error: Exception) -> bool:
    """True if the error comes from the temporary folder, not from the linker."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOENT, errno.EIO)
    return any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return os.environ.get("TMPDIR", "the folder of temporary files")


def link(executable: Any, objects: Sequence[bytes], machine: Machine) -> bytes:
    """The shared library of an executable (without its kernels), these object files, and our thread pool."""
    try:
        with tempfile.TemporaryDirectory(prefix="partita-") as folder:
            path = Path(folder) / "library.so"
            with compiling.lock:
                program = _program(executable, objects[0], machine.target, Path(folder))
            programs = tools(machine.triple)
            threads = pool_object(*programs.compile) if programs is not None and programs.compile else None
            files = []
            for number, code in enumerate([program, *objects, *([threads] if threads else ())]):
                files.append(Path(folder) / f"part{number}.o")
                files[-1].write_bytes(code)
            share(path, files, machine.triple)
            return path.read_bytes()
    except CompileError:
        raise
    except Exception as error:
        raise not_linked(error) from error


def load(library: bytes) -> Any:
    """The library loaded into this process; its file is deleted once it is mapped."""
    try:
        with tempfile.TemporaryDirectory(prefix="partita-") as folder:
            path = Path(folder) / "library.so"
            path.write_bytes(library)
            return load_library(str(path))
    except Exception as error:
        cause = f"the linked library of its kernels cannot be loaded: {first_line(error)}"
        raise NotSupported(cause, remedy="Set TMPDIR to a folder that has room and that code may run from") from error


def _program(executable: Any, kernels: bytes, target: Any, folder: Path) -> bytes:
    """The virtual machine's program as an object file, for the processor of the kernels' object file. An empty module of machine
    code stands for the kernels, so that the program looks for them in the library that it is loaded from."""
    executable.mod.import_module(_stand_in(target))
    pack = part("runtime._ffi_api")
    if is_elf(kernels):
        return data_object(_PROGRAM, pack.ModulePackImportsToTensor(executable.mod).numpy().tobytes(), kernels)
    description = str(_stand_in(target).get_function("_get_target_string")())
    return written(pack.ModulePackImportsToLLVM(executable.mod, False, description, ""), folder)


@cache
def _stand_in(target: Any) -> Any:
    """An empty module of machine code."""
    return function("target.build.llvm")(tvm().IRModule({}), target)
