"""The machine that kernels are compiled for: the host's own instruction set, or a GPU architecture."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import attrs

from accelerators.tvm.machine.integers import BY_NAME, best_instruction
from accelerators.tvm.machine.library import function, tvm
from accelerators.tvm.machine.processor import host_features

INSTRUCTIONS = frozenset(("avx512bf16",))
"""Extensions with instructions that kernels name themselves; LLVM finds those of the others."""

STEPS = 65_536
"""Fewer cheap steps than this are one thread's work: to wake the others takes as long."""


@attrs.frozen(slots=True)
class Machine:
    """A target as schedules see it."""

    kind: str
    """"cpu" or "cuda"."""
    arch: str
    """The processor by LLVM's name, or the GPU's architecture ("sm_80")."""
    threads: int
    """On how many threads a kernel runs."""
    lanes: int
    """How many 32-bit numbers a vector register holds."""
    registers: int = 16
    """How many vector registers there are."""
    integers: str = "plain"
    """How products of 8-bit integers are summed up: the name of an instruction of `integers.py`."""
    emulates: bool = False
    """Is that instruction written out in portable code, which makes the same numbers?"""
    instructions: str = ""
    """Which of the extensions of `INSTRUCTIONS` it has, by LLVM's names; one that ends in ":emulated" is written out in portable
    code, which makes the same bits."""

    @property
    def is_gpu(self) -> bool:
        """Is it a GPU, whose kernels the generic rules schedule, and whose memory is its own?"""
        return self.kind != "cpu"

    def threads_for(self, amount: int, least: int = STEPS) -> int:
        """The number of threads that share this much work: one, where it is too little to wake the others for."""
        return self.threads if amount >= least else 1

    @property
    def target(self) -> Any:
        """TVM's own description of the machine."""
        return _target(self)

    def identity(self) -> dict[str, str]:
        """The properties that code for it depends on: the host's instruction set, and its number of threads or the
        GPU's architecture.
        """
        host = {"target": host_cpu(), "features": " ".join(sorted(host_features()))}
        own = {"threads": str(self.threads), "integers": self.integers}
        return {**host, **own} if not self.is_gpu else {**host, "gpu": self.arch}


@cache
def _target(machine: Machine) -> Any:
    make_target = tvm().target.Target
    host = {"kind": "llvm", "mcpu": host_cpu(), "num-cores": os.cpu_count() or 1}
    if not machine.is_gpu:
        return make_target({**host, "mcpu": machine.arch, "num-cores": machine.threads})
    return make_target(
        {"kind": "cuda", "arch": machine.arch, "max_threads_per_block": 1024, "thread_warp_size": 32,
         "max_shared_memory_per_block": 49152},
        host=make_target(host),
    )


@cache
def host_cpu() -> str:
    """The host's processor by LLVM's name; "generic" where there is no compiler."""
    asked = function("tvm.codegen.llvm.GetHostCPUName")
    return str(asked() or "generic") if asked is not None else "generic"


@cache
def host_machine(threads: int) -> Machine:
    """The host with so many threads."""
    features = host_features()
    integers = best_instruction(features)
    if "avx512f" in features:
        return Machine("cpu", host_cpu(), threads, 16, 32, integers, instructions=" ".join(sorted(features & INSTRUCTIONS)))
    if "avx2" in features:
        return Machine("cpu", host_cpu(), threads, 8, 16, integers)
    return Machine("cpu", host_cpu(), threads, 4, 32 if "neon" in features else 16, integers)


def with_integers(machine: Machine, name: str) -> Machine:
    """The machine with another instruction for integers, written out where the host lacks it; without a name as it is."""
    if not name:
        return machine
    return attrs.evolve(machine, integers=name, emulates=not BY_NAME[name].is_here(host_features()))


def gpu_machine(arch: str) -> Machine:
    """A GPU of this architecture."""
    return Machine("cuda", arch, 1, 1)
