"""The machine that kernels are compiled for: a processor, the host's or a named one, or a GPU architecture."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import attrs

from partita.accelerators.tvm.machine.gpu import Gpu, cuda_gpu, opencl_gpu
from partita.accelerators.tvm.machine.instructions import BY_NAME, Used, best_instructions
from partita.accelerators.tvm.machine.library import function, gpu_hooks, tvm
from partita.accelerators.tvm.machine.parallel_thresholds import STEPS, TASKS
from partita.accelerators.tvm.machine.processor import KNOWN_FEATURES, PROCESSORS, Processor, is_here, processor, usable_features
from partita.accelerators.tvm.sizes.extent import Extent

LINE_LANES = 16
"""Number of 32-bit elements in a line of the cache."""

SHORTEST = 4
"""Number of 32-bit elements in the vectors of the oldest x86 processors, which have no fused multiply-add."""


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
    triple: str = ""
    """LLVM's name of a named processor's architecture and operating system; "" means the host's."""
    features: tuple[str, ...] = ()
    """The processor's extensions that kernels may use, by LLVM's names."""
    fuses: bool = False
    """True if it multiplies and adds vectors of any length in one instruction."""
    near: int = 32 << 10
    """Bytes of the processor's nearest data cache that tiles are planned for."""

    @property
    def is_gpu(self) -> bool:
        """True for a GPU: the generic rules for GPUs schedule its kernels, and it has memory of its own."""
        return self.kind != "cpu"

    @property
    def is_here(self) -> bool:
        """True if its code runs on the host."""
        return is_here(self.triple) and (not self.triple or usable_features().issuperset(self.features))

    @property
    def fills_lines(self) -> bool:
        """True if a vector is as long as a line of the cache. Two pixels share a line of shorter ones, and fewer products hide
        its load."""
        return self.lanes == LINE_LANES

    @property
    def has_fma(self) -> bool:
        """True if the processor surely multiplies and adds in one instruction."""
        return self.fuses or self.lanes > SHORTEST

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
        return next((used for used in self.instructions if used.row.multiplies == dtype), None)

    @property
    def target(self) -> Any:
        """TVM's target for the machine."""
        return _target(self)

    def identity(self) -> dict[str, str]:
        """Properties that code for a processor depends on: its instruction set, and its number of threads."""
        code = {"target": self.arch, "features": " ".join(self.features), **({"triple": self.triple} if self.triple else {})}
        return {**code, "threads": str(self.threads), "instructions": " ".join(map(str, self.instructions))}


@cache
def _target(machine: Machine) -> Any:
    make_target = tvm().target.Target
    without = [f"-{name}" for name in (hidden_features() if machine.is_gpu else machine.hidden)]
    host = {"kind": "llvm", "mcpu": host_cpu(), "num-cores": os.cpu_count() or 1, "mattr": without}
    if not machine.is_gpu:
        own = {"mcpu": machine.arch, "num-cores": machine.threads}
        if machine.triple:
            own |= {"mtriple": machine.triple, "mattr": [*without, *(f"+{name}" for name in machine.features)]}
            own |= {} if machine.arch in PROCESSORS else {"mcpu": "generic"}
        return make_target({**host, **own})
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
def hidden_features(name: str = "") -> tuple[str, ...]:
    """Extensions that LLVM assumes for a processor of this name, by default the host's, and that it lacks."""
    named = PROCESSORS.get(name)
    asked, there = function("target.llvm_get_cpu_features"), usable_features() if named is None else named.features
    if asked is None or not there:
        return ()
    like = {"mcpu": host_cpu()} if named is None else {"mcpu": name, "mtriple": named.triple}
    promised = {str(extension) for extension in asked(function("target.Target")({"kind": "llvm", **like}))}
    return tuple(sorted(promised & KNOWN_FEATURES - there))


@cache
def host_machine(threads: int) -> Machine:
    """The host with this many threads."""
    return _of(Processor(host_cpu(), "", usable_features()), threads, hidden_features())


@cache
def named_machine(name: str, threads: int = 0) -> Machine:
    """The processor of a name in the configuration, with its own number of cores unless there are so many threads."""
    named = processor(name)
    return _of(named, threads or named.cores, hidden_features(name) if name in PROCESSORS else ())


def _of(one: Processor, threads: int, hidden: tuple[str, ...]) -> Machine:
    own = one.triple, tuple(sorted(one.features)), one.fuses, one.near
    instructions = best_instructions(one.features)
    return Machine("cpu", one.name, threads, one.lanes, one.registers, instructions, hidden, False, *own)


def with_instruction(machine: Machine, name: str) -> Machine:
    """The machine with another instruction for its element type, emulated if the processor lacks it; itself for no name.

    Float vectors become as long as the instruction's."""
    if not name:
        return machine
    row, features = BY_NAME[name], machine.features if machine.triple else usable_features()
    others = [used for used in machine.instructions if used.row.multiplies != row.multiplies]
    machine = attrs.evolve(machine, instructions=(*others, Used(name, not row.is_here(features), is_asked=True)))
    differs = row.multiplies in ("bfloat16", "float16") and row.lanes not in (0, machine.lanes)
    return attrs.evolve(machine, lanes=row.lanes, registers=32) if differs else machine


def gpu_machine(arch: str, takes_tf32: bool = False) -> Machine:
    """A GPU of this architecture."""
    return Machine("cuda", arch, 1, 1, takes_tf32=takes_tf32)


def opencl_machine(threads: int, local_memory: int, extensions: frozenset[str]) -> Machine:
    """An OpenCL device whose work-groups have at most this many items and bytes of local memory."""
    return Machine("opencl", "+".join([f"{threads}x{local_memory}", *sorted(extensions)]), 1, 1)
