"""The machine that kernels are compiled for: the host's instruction set, or a GPU architecture."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import attrs

from partita.accelerators.tvm.machine.gpu import Gpu, cuda_gpu, opencl_gpu
from partita.accelerators.tvm.machine.instructions import BY_NAME, Used, best_instructions
from partita.accelerators.tvm.machine.library import function, gpu_hooks, tvm
from partita.accelerators.tvm.machine.parallel_thresholds import STEPS, TASKS
from partita.accelerators.tvm.machine.processor import KNOWN_FEATURES, usable_features
from partita.accelerators.tvm.sizes.extent import Extent


@attrs.frozen(slots=True)
class Machine:
    """A compilation target, with the properties that schedules use."""

    kind: str
    """"cpu", "cuda" or "opencl"."""
    arch: str
    """LLVM's name of the processor, the GPU's architecture ("sm_80"), or the limits of an OpenCL device ("256x32768")."""
    threads: int
    """Number of threads that run a kernel."""
    lanes: int
    """Number of 32-bit elements of a vector register."""
    registers: int = 16
    """Number of vector registers."""
    instructions: tuple[Used, ...] = ()
    """The special instructions that kernels use, at most one for each element type."""
    hidden: tuple[str, ...] = ()
    """LLVM's names of extensions that processors of this name have and this one lacks: virtual machines hide some."""
    takes_tf32: bool = False
    """True if float32 products may round their operands to TF32 for tensor cores."""

    @property
    def is_gpu(self) -> bool:
        """True for a GPU: the generic rules for GPUs schedule its kernels, and it has memory of its own."""
        return self.kind != "cpu"

    @property
    def gpu(self) -> Gpu:
        """Sizes of the GPU."""
        return opencl_gpu(self.arch) if self.kind == "opencl" else cuda_gpu(self.arch)

    @property
    def rounds_products(self) -> bool:
        """True if float32 products round their operands."""
        return self.is_gpu and self.takes_tf32 and self.gpu.has_tensor_cores

    def threads_for(self, amount: int, least: int = STEPS) -> int:
        """Number of threads for this much work: one if waking the others would take longer. Dynamic amounts count as enough."""
        return self.threads if self.is_gpu or isinstance(amount, Extent) or amount >= least else 1

    def tasks_for(self, amount: int, least: int = STEPS) -> int:
        """Number of tasks for this much work: several for each thread that takes part."""
        threads = self.threads_for(amount, least)
        return TASKS * threads if threads > 1 else 1

    def instruction(self, dtype: str) -> Used | None:
        """The special instruction for products of this element type; None if there is none."""
        return next((used for used in self.instructions if BY_NAME[used.name].multiplies == dtype), None)

    @property
    def target(self) -> Any:
        """TVM's target for the machine."""
        return _target(self)

    def identity(self) -> dict[str, str]:
        """Properties that code for a processor depends on: its instruction set, and its number of threads."""
        host = {"target": host_cpu(), "features": " ".join(sorted(usable_features()))}
        own = {"threads": str(self.threads), "instructions": " ".join(map(str, self.instructions))}
        return {**host, **own}


@cache
def _target(machine: Machine) -> Any:
    make_target = tvm().target.Target
    without = [f"-{name}" for name in (hidden_features() if machine.is_gpu else machine.hidden)]
    host = {"kind": "llvm", "mcpu": host_cpu(), "num-cores": os.cpu_count() or 1, "mattr": without}
    if not machine.is_gpu:
        return make_target({**host, "mcpu": machine.arch, "num-cores": machine.threads})
    gpu_hooks(machine.kind)
    if machine.kind == "opencl":
        threads, memory = map(int, machine.arch.split("+")[0].split("x"))
        limits = {"max_threads_per_block": threads, "max_num_threads": threads, "max_shared_memory_per_block": memory}
        # Reductions across threads go through local memory, which every device has; shuffles are extensions.
        return make_target({"kind": "opencl", "thread_warp_size": 1, **limits}, host=make_target(host))
    return make_target(
        {"kind": "cuda", "arch": machine.arch, "max_threads_per_block": 1024, "thread_warp_size": 32,
         "max_shared_memory_per_block": 49152},
        host=make_target(host),
    )


@cache
def host_cpu() -> str:
    """LLVM's name of the host's processor; "generic" without a compiler."""
    asked = function("tvm.codegen.llvm.GetHostCPUName")
    return str(asked() or "generic") if asked is not None else "generic"


@cache
def hidden_features() -> tuple[str, ...]:
    """Extensions that LLVM assumes for a processor of the host's name and the host lacks."""
    asked, there = function("target.llvm_get_cpu_features"), usable_features()
    if asked is None or not there:
        return ()
    promised = {str(name) for name in asked(function("target.Target")({"kind": "llvm", "mcpu": host_cpu()}))}
    return tuple(sorted(promised & KNOWN_FEATURES - there))


@cache
def host_machine(threads: int) -> Machine:
    """The host with this many threads."""
    features = usable_features()
    lanes, registers = 4, 32 if "neon" in features else 16
    if "avx512f" in features:
        lanes, registers = 16, 32
    elif "avx2" in features:
        lanes = 8
    return Machine("cpu", host_cpu(), threads, lanes, registers, best_instructions(features), hidden_features())


def with_instruction(machine: Machine, name: str) -> Machine:
    """The machine with another instruction for its element type, emulated if the host lacks it; unchanged if `name` is empty.

    Float vectors become as wide as the instruction's."""
    if not name:
        return machine
    row = BY_NAME[name]
    others = [used for used in machine.instructions if BY_NAME[used.name].multiplies != row.multiplies]
    machine = attrs.evolve(machine, instructions=(*others, Used(name, not row.is_here(usable_features()), is_asked=True)))
    is_wider = row.multiplies == "bfloat16" and row.lanes > machine.lanes
    return attrs.evolve(machine, lanes=row.lanes, registers=32) if is_wider else machine


def gpu_machine(arch: str, takes_tf32: bool = False) -> Machine:
    """A GPU of this architecture."""
    return Machine("cuda", arch, 1, 1, takes_tf32=takes_tf32)


def opencl_machine(threads: int, local_memory: int, extensions: frozenset[str]) -> Machine:
    """An OpenCL device whose work-groups have at most this many items and bytes of local memory."""
    return Machine("opencl", "+".join([f"{threads}x{local_memory}", *sorted(extensions)]), 1, 1)
