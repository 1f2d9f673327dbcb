"""The device `cuda`: TVM's CUDA code generation. It compiles without a GPU and runs where there is one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from accelerators.errors import AcceleratorError, AcceleratorUnavailable
from accelerators.tvm.device import TvmAccelerator
from accelerators.tvm.library import function, tvm
from accelerators.tvm.machine import Machine, gpu_machine
from accelerators.tvm.nvcc import NVRTC, compiler

DEFAULT_ARCH = "sm_80"
"""What is compiled for where no GPU says otherwise."""


class CudaAccelerator(TvmAccelerator):
    """A GPU of NVIDIA's; ARCH is "sm_90" or the like, by default the GPU's own, else sm_80."""

    name = "cuda"
    config_keys = {**TvmAccelerator.config_keys, "ARCH": ""}

    def __init__(self) -> None:
        super().__init__()
        if function("target.build.cuda") is None:
            raise AcceleratorUnavailable("this build of TVM generates no CUDA code", remedy="Install TVM's own wheel: apache-tvm")
        if compiler() is None:
            raise AcceleratorUnavailable(
                "there is no compiler for CUDA code: neither nvcc nor NVRTC is found",
                remedy="Install the CUDA toolkit (nvcc on the PATH, or CUDA_HOME), or pip install cuda-python",
            )
        if compiler() != NVRTC:
            os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """A GPU of the architecture asked for."""
        arch = str(config["ARCH"]) or gpu_arch() or DEFAULT_ARCH
        if not (arch.startswith("sm_") and arch[3:].rstrip("af").isdigit()):
            raise AcceleratorError(
                f"{arch!r} is no GPU architecture", where="ARCH of device 'cuda'", remedy='Write it as "sm_90"'
            )
        return gpu_machine(arch)

    def metrics(self) -> dict[str, Any]:
        """The GPU here, or the architecture that is compiled for."""
        here = gpu_arch()
        return {
            "AVAILABLE_DEVICES": [str(i) for i in range(64) if tvm().cuda(i).exist] if here else [],
            "FULL_DEVICE_NAME": f"TVM {tvm().__version__} for "
            + (f"{tvm().cuda(0).device_name} ({here})" if here else f"{DEFAULT_ARCH}, no GPU here: compiles, does not run"),
            "OPTIMIZATION_CAPABILITIES": ["FP32", "FP64", "FP16", "INT8"],
        }


def gpu_arch() -> str | None:
    """The architecture of the first GPU here; None where there is none."""
    device = tvm().cuda(0)
    return f"sm_{device.compute_version.replace('.', '')}" if device.exist else None
