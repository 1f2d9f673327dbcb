"""What schedules of our own ask of a GPU."""

from __future__ import annotations

import attrs


@attrs.frozen(slots=True)
class Gpu:
    """The sizes of a GPU that kernels are cut for."""

    cores: int
    """The number of cores, each of which runs blocks of its own: streaming multiprocessors, or compute units."""
    threads: int
    """The largest number of threads of a block."""
    shared: int
    """The bytes of memory that the threads of a block share."""
    warp: int = 32
    """The number of threads that run in step."""
    registers: int = 65536
    """The registers of a core, of 32 bits each."""
    has_tensor_cores: bool = False
    """Do its warps multiply matrices of float16 and of bfloat16, and copy to shared memory while they do?"""
    alignment: int = 512
    """A value may begin at each multiple of so many bytes of a piece of memory: as drivers for OpenCL want it, at most."""


CORES = {
    "sm_70": 80, "sm_75": 68, "sm_80": 108, "sm_86": 84, "sm_87": 16, "sm_89": 128, "sm_90": 132, "sm_100": 148, "sm_103": 148,
    "sm_120": 170,
}
"""The cores of a large GPU of each architecture of NVIDIA's."""

TENSOR_CORES = 80
"""The first architecture of NVIDIA's with the instructions that kernels for tensor cores use."""

USUAL_CORES = 64
"""The number of cores that is taken for a GPU that nothing is known of. Kernels for OpenCL are the same for every driver."""


WIDEST = 16
"""The bytes that a thread reads at once at most, and copies of which begin at a multiple."""


def cuda_gpu(arch: str) -> Gpu:
    """A GPU of NVIDIA's; the shared memory is what a kernel has without asking for more."""
    name = arch.rstrip("af")
    has_tensor_cores = int(name.removeprefix("sm_")) >= TENSOR_CORES
    return Gpu(CORES.get(name, USUAL_CORES), 1024, 49152, has_tensor_cores=has_tensor_cores, alignment=WIDEST)


def opencl_gpu(arch: str) -> Gpu:
    """An OpenCL device with the limits that a machine's `arch` states, as "256x32768+cl_khr_fp16"."""
    threads, memory = map(int, arch.split("+")[0].split("x"))
    return Gpu(USUAL_CORES, threads, memory)
