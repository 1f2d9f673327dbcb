"""What the kernels of a model take of a GPU's cores, as ptxas, NVIDIA's assembler, says: registers, shared memory, and what is
spilled."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from partita.accelerators.tvm.code import nvcc

SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


@attrs.frozen(slots=True)
class Taken:
    """The most that one kernel among several takes."""

    registers: int
    """Of a thread."""
    shared: int
    """The bytes that the threads of a block share."""
    spilled: int
    """The bytes that found no register and went to memory and back."""


def can_assemble() -> bool:
    """Is there an assembler that tells?"""
    return nvcc.compiler() not in (None, nvcc.NVRTC)


def taken(sources: Iterable[str], arch: str) -> Taken:
    """What the kernels of these CUDA sources take for an architecture; several sources are compiled at a time."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        said = "\n".join(pool.map(lambda source: _said(source, arch), sources))
    return read(said)


def read(said: str) -> Taken:
    """What ptxas says of each kernel, as the most of all."""
    spilled = [int(stores) + int(loads) for stores, loads in SPILLED.findall(said)]
    registers, shared = (list(map(int, pattern.findall(said))) for pattern in (USED, SHARED))
    return Taken(max(registers, default=0), max(shared, default=0), max(spilled, default=0))


def _said(source: str, arch: str) -> str:
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        given, code = Path(folder) / "kernel.cu", Path(folder) / "kernel.cubin"
        given.write_text(source)
        command = [str(nvcc.compiler()), "-cubin", f"-arch={arch}", "-O3", "-Xptxas", "-v", "-o", str(code), str(given)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr
