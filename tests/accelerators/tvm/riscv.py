"""Models whose kernels are compiled for RISC-V and run in qemu's user emulation, one by one: all else runs here.

There is no Python and no TVM for that processor, so that the virtual machine, the weights and the results are this process's,
and each kernel is called in an emulated one, through `riscv.c`."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import partita as pt
from benchmarks.models.own import OWN, unet
from partita.accelerators.tvm.compiled import assembling
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.run.runtime import runtime
from partita.graph.types import Array
from tests.accelerators.tvm.arm import Case, inputs, problem

EMULATOR = shutil.which("qemu-riscv64") or shutil.which("qemu-riscv64-static")

COMPILER = "riscv64-linux-gnu-gcc"

OLDEST = 8
"""The first version of the emulator that runs all instructions of our code."""

VECTORS = {"riscv64": 128, "riscv64+zvl256b": 256}
"""The length in bits of a processor's vectors."""


def why_not() -> str | None:
    """Why kernels for RISC-V cannot be run here; None if they can."""
    if EMULATOR is None or shutil.which(COMPILER) is None:
        return "no qemu-riscv64 and riscv64-linux-gnu-gcc here"
    told = subprocess.run([EMULATOR, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"version (\d+)", told)
    is_new = version is not None and int(version[1]) >= OLDEST
    return None if is_new else f"qemu is older than {OLDEST}: it ends at some vector instructions"


class Emulated:
    """A process of qemu that has loaded one library of kernels."""

    def __init__(self, library: bytes, arch: str, folder: Path) -> None:
        program, code = folder / "call", folder / f"{arch}-{len(list(folder.iterdir()))}.so"
        if not program.exists():
            source = Path(__file__).with_name("riscv.c")
            subprocess.run([COMPILER, "-O1", "-rdynamic", source, "-ldl", "-o", program], check=True)
        code.write_bytes(library)
        cpu = f"rv64,v=true,vext_spec=v1.0,vlen={VECTORS[arch]},elen=64,zfhmin=true,zba=true,zbb=true,zbs=true"
        command = [str(EMULATOR), "-cpu", cpu, "-L", "/usr/riscv64-linux-gnu", program, code]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.calls = 0
        """Number of kernels that it has run."""

    def call(self, name: str, arguments: Sequence[Any]) -> None:
        """Run a kernel, and take over what it has written."""
        assert self.process.stdin is not None and self.process.stdout is not None
        symbol = f"__tvm_ffi_{name}".encode()
        message = [struct.pack("<q", len(symbol)), symbol, struct.pack("<q", len(arguments))]
        arrays = [None if isinstance(one, int) else _bytes(one) for one in arguments]
        for one, array in zip(arguments, arrays, strict=True):
            if array is None:
                message.append(struct.pack("<qq", -1, one))
            else:
                kind, shape = one.dtype, list(one.shape)
                word = kind.type_code | kind.bits << 8 | kind.lanes << 16
                message.append(struct.pack(f"<qqq{len(shape)}q", array.nbytes, word, len(shape), *shape))
                message.append(array.tobytes())
        self.process.stdin.write(b"".join(message))
        self.process.stdin.flush()
        status = self.process.stdout.read(8)
        assert status == bytes(8), f"{name} ends with {status!r}: {self.process.poll()}"
        for array in filter(lambda one: one is not None, arrays):
            written = np.frombuffer(self.process.stdout.read(array.nbytes), np.uint8)
            if not np.array_equal(array, written):  # weights are in memory that cannot be written to
                array[...] = written
        self.calls += 1

    def kernel(self, name: str) -> Callable[..., None]:
        """A kernel as a function of its arguments."""
        return lambda *arguments: self.call(name, arguments)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


def _bytes(tensor: Any) -> Array:
    """The memory of a tensor."""
    kind = tensor.dtype
    size = math.prod(tensor.shape) * -(-kind.bits * kind.lanes // 8)
    return np.frombuffer((ctypes.c_uint8 * size).from_address(tensor.data_ptr()), np.uint8) if size else np.zeros(0, np.uint8)


def names_of(library: bytes) -> list[str]:
    """The names of a library's kernels."""
    return sorted({name.decode() for name in re.findall(rb"__tvm_ffi_(\w+)\0", library)} - {"_library_bin"})


@contextmanager
def emulation(folder: Path) -> Iterator[list[Emulated]]:
    """A context in which code for RISC-V that is compiled can be called at once; it yields the processes that hold it."""
    processes = list[Emulated]()
    ready: dict[bytes, Any] = {}
    link = assembling.link

    def linked(executable: Any, objects: Sequence[bytes], machine: Machine) -> bytes:
        library = link(executable, objects, machine)
        process = Emulated(library, machine.arch, folder)
        processes.append(process)
        executable.mod.clear_imports()  # an empty module for the other processor
        ready[library] = executable, process
        return library

    def load(library: bytes) -> Any:
        executable, process = ready[library]
        for name in names_of(library):
            runtime().register_global_func(name, process.kernel(name), override=True)
        return executable

    with (
        mock.patch.object(assembling, "link", linked),
        mock.patch.object(assembling, "load", load),
        mock.patch.object(Machine, "is_here", True),
    ):
        try:
            yield processes
        finally:
            for process in processes:
                process.close()


def problems(case: Case, arch: str, folder: Path) -> list[str]:
    """The mistakes in the results of a graph whose kernels run on a processor."""
    graph, given, wanted = case
    expected = wanted if wanted is not None else [np.asarray(value) for value in pt.compile(graph, "reference")(*given)]
    with emulation(folder) as processes:
        results = pt.compile(graph, "cpu", config={"CACHE_DIR": "", "cpu": {"ARCH": arch}})(*given)
        if not sum(process.calls for process in processes):
            return ["no kernel ran"]
    return [found for pair in zip(results, expected, strict=True) if (found := problem(*pair))]


SIZES = {"batch": 2, "tokens": 12, "s10": 1, "s43": 1, "s70": 4, "s53": 7, "s15": 3, "s69": 3, "s81": 3, "s89": 3}
"""Sizes for the symbols of tests' models."""


def model(name: str) -> Case:
    """A model of the zoo, of tests' data, or of the benchmarks' own, with inputs and what onnxruntime computes."""
    graph = unet(1, 64) if name == "unet" else OWN[name](1) if name in OWN else pt.load(name)
    given = inputs(graph, 0, 2, SIZES)
    return graph, given, [np.asarray(value) for value in pt.compile(graph, "onnxruntime")(*given)]
