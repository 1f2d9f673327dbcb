"""CUDA source compiled to PTX and machine code with the machine's own compiler (TVM itself needs a driver for that)."""

from __future__ import annotations

import importlib
import os
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from partita.accelerators.errors import CompileError
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.tvm.machine.library import part
from partita.graph.programs import find_program
from partita.passes.python_child import environment

NVRTC = "NVRTC"
"""Name for NVRTC, the compiler as a library, in place of a path."""


@cache
def compiler() -> str | None:
    """The CUDA compiler of this machine: nvcc's path, or NVRTC; None if there is neither."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    beside = (Path(home) / "bin" / "nvcc" for home in homes if home)
    tool = find_program("nvcc") or next((str(path) for path in beside if path.exists()), None)
    return tool or (NVRTC if _has_nvrtc() else None)


def _has_nvrtc() -> bool:
    """True if NVRTC loads. Packages of that name may exist without it, or without the library."""
    try:
        status, *_ = importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except (ImportError, OSError, RuntimeError):
        return False
    return int(status) == 0


def cubins_of_all(sources: Iterable[str], arch: str) -> dict[str, bytes]:
    """Machine code of each source, compiled in parallel; CompileError with the compiler's first error."""
    listed = list(sources)
    with Pool(os.cpu_count() or 1) as pool:
        return dict(zip(listed, pool.map(lambda source: _compiled(source, arch, "cubin"), listed), strict=True))


def ptx(source: str, arch: str) -> str:
    """The source as PTX; CompileError with the compiler's first error."""
    return _compiled(source, arch, "ptx").decode()


@lru_cache(maxsize=2048)
def _compiled(source: str, arch: str, form: str) -> bytes:
    tool = compiler()
    if tool is None:
        raise CompileError(
            "there is no compiler for CUDA code: neither nvcc nor NVRTC is found", remedy="Install the CUDA toolkit"
        )
    if tool == NVRTC:
        try:
            return bytes(part("support.nvcc").compile_cuda(source, target_format=form, arch=arch, compiler="nvrtc"))
        except Exception as error:
            raise _refusal(NVRTC, str(error), arch) from error
    return _by_nvcc(tool, source, arch, form)


def _by_nvcc(path: str, source: str, arch: str, form: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        given, target_path = Path(folder) / "kernel.cu", Path(folder) / f"kernel.{form}"
        given.write_text(source)
        command = [path, f"-{form}", f"-arch={arch}", "-O3", "-o", str(target_path), str(given)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
        if done.returncode:
            raise _refusal("nvcc", done.stderr, arch)
        return target_path.read_bytes()


def _refusal(who: str, said: str, arch: str) -> CompileError:
    """Error with the compiler's first error message."""
    lines = [line.strip() for line in said.splitlines() if "error" in line or "fatal" in line]
    complaint = lines[0] if lines else said.strip()[:200]
    return CompileError(
        f"{who} refuses the generated code: {complaint}", remedy=f"Is {arch} an architecture that this {who} knows?"
    )
