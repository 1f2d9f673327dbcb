"""The device `cuda`: TVM's CUDA code generation. It compiles without a GPU and runs where there is one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from accelerators.errors import AcceleratorUnavailable, BadConfig
from accelerators.interface.keys import Key
from accelerators.tvm.asked_precision import DTYPES, FAST, PRECISION, narrowed
from accelerators.tvm.code.nvcc import NVRTC, compiler
from accelerators.tvm.device import GPU_KEYS, TvmAccelerator
from accelerators.tvm.machine.machine import Machine, gpu_machine
from accelerators.tvm.machine.special import Used
from accelerators.tvm.run.runtime import arch_of, exists, function, gpu, name_of, version
from graph.graph import Graph

TENSOR_PRODUCT = "mma.sync"
"""What the report calls the instruction of tensor cores."""

DEFAULT_ARCH = "sm_80"
"""The architecture to compile for where there is no GPU that says another one."""


def _architecture(value: Any) -> str:
    """Check the name of a GPU architecture; "" means the GPU's own."""
    named = isinstance(value, str) and value.startswith("sm_") and value[3:].rstrip("af").isdigit()
    if value != "" and not named:
        raise BadConfig(f"{value!r} is no GPU architecture", where="ARCH of device 'cuda'", remedy='Write it as "sm_90"')
    return str(value)


class CudaAccelerator(TvmAccelerator):
    """A GPU of NVIDIA's; ARCH is "sm_90" or the like, by default the GPU's own, else sm_80.

    PRECISION is the type in which products are made and values stored: "fast" takes bf16 where the GPU has tensor cores."""

    name = "cuda"
    config_keys = {**GPU_KEYS, "ARCH": Key("", _architecture), "PRECISION": PRECISION}

    def __init__(self) -> None:
        super().__init__()
        missing = self.why_no_compiler()
        if missing is not None and gpu_arch() is None:
            raise AcceleratorUnavailable(
                f"there is no GPU here, and nothing to compile for one: {missing}",
                remedy="Install the CUDA toolkit (nvcc on the PATH, or CUDA_HOME), or pip install cuda-bindings[all]",
            )
        if compiler() not in (NVRTC, None):
            os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")

    def why_no_compiler(self) -> str | None:
        """Why this device cannot compile here and only runs models that were compiled before; None where it compiles."""
        if compiler() is None:
            return "there is no compiler for CUDA code: neither nvcc nor NVRTC is found"
        if super().why_no_compiler() is None and function("target.build.cuda") is None:
            return "this build of TVM generates no CUDA code: install TVM's own wheel, apache-tvm"
        return super().why_no_compiler()

    def why_not_here(self, config: Mapping[str, Any]) -> str | None:
        """There is no GPU, and ARCH does not ask for code for another machine's."""
        if config["ARCH"] or gpu_arch() is not None:
            return None
        return "there is no GPU here; ARCH compiles for one elsewhere"

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """A GPU of the architecture asked for."""
        return gpu_machine(config["ARCH"] or gpu_arch() or DEFAULT_ARCH)

    def lay_out(self, graph: Graph, machine: Machine) -> Graph:
        """Numbers of two bytes where they are asked for."""
        held, dtype = super().lay_out(graph, machine), self.precision(machine)
        if dtype == "float32":
            return held
        with self._trials_as_configured():
            return narrowed(held, dtype, machine, Used(TENSOR_PRODUCT) if machine.gpu.has_tensor_cores else None)

    def precision(self, machine: Machine) -> str:
        """The element type of products, as the configuration asks for it on this GPU."""
        asked = self._config["PRECISION"]
        if asked == FAST:
            return "bfloat16" if machine.gpu.has_tensor_cores else "float32"
        return DTYPES[asked]

    def meaning(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The architecture is told by `identity`; PRECISION is the type that it stands for."""
        precision = self.configured(config).precision(self.machine(config))
        return {**{key: value for key, value in config.items() if key != "ARCH"}, "PRECISION": precision}

    def metrics(self) -> dict[str, Any]:
        """The GPU here, or the architecture that is compiled for."""
        here = gpu_arch()
        index = int(self.get_config("DEVICE_ID"))
        return {
            "AVAILABLE_DEVICES": [str(i) for i in range(64) if exists(gpu(i))] if here else [],
            "FULL_DEVICE_NAME": f"TVM {version()} for "
            + (f"{name_of(gpu(index))} ({here})" if here else f"{DEFAULT_ARCH}, no GPU here: compiles, does not run"),
            "OPTIMIZATION_CAPABILITIES": ["FP32", "FP64", "FP16", "BF16", "INT8"],
        }


def gpu_arch() -> str | None:
    """The architecture of the first GPU here; None where there is none."""
    device = gpu(0)
    return arch_of(device) if exists(device) else None
