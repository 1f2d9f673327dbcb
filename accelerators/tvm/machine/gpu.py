"""Properties of a GPU that our own schedules use."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.machine.instructions import FIRST_TENSOR_CORES


@attrs.frozen(slots=True)
class Gpu:
    """Sizes of a GPU that determine the tiles of kernels."""

    cores: int
    """Number of cores that run blocks: streaming multiprocessors, or compute units."""
    threads: int
    """Maximum number of threads of a block."""
    shared: int
    """Bytes of shared memory of a block."""
    warp: int = 32
    """Number of threads that execute in lockstep."""
    registers: int = 65536
    """Number of 32-bit registers of a core."""
    has_tensor_cores: bool = False
    """True if its warps multiply matrices of float16 and bfloat16, and copy to shared memory asynchronously."""
    alignment: int = 512
    """Required alignment in bytes of a value inside a memory block; the default is the strictest of OpenCL drivers."""


CORES = {
    "sm_70": 80, "sm_75": 68, "sm_80": 108, "sm_86": 84, "sm_87": 16, "sm_89": 128, "sm_90": 132, "sm_100": 148, "sm_103": 148,
    "sm_120": 170,
}
"""Number of cores of a large GPU, by NVIDIA architecture."""

USUAL_CORES = 64
"""Number of cores assumed for an unknown GPU. Kernels for OpenCL are the same for every driver."""


WIDEST = 16
"""Maximum bytes that a thread reads at once, and the alignment of copies of that many."""


def cuda_gpu(arch: str) -> Gpu:
    """An NVIDIA GPU; the shared memory is the default limit of a kernel."""
    name = arch.rstrip("af")
    has_tensor_cores = int(name.removeprefix("sm_")) >= FIRST_TENSOR_CORES
    return Gpu(CORES.get(name, USUAL_CORES), 1024, 49152, has_tensor_cores=has_tensor_cores, alignment=WIDEST)


def opencl_gpu(arch: str) -> Gpu:
    """An OpenCL device with the limits in a machine's `arch`, as "256x32768+cl_khr_fp16"."""
    threads, memory = map(int, arch.split("+")[0].split("x"))
    return Gpu(USUAL_CORES, threads, memory)
