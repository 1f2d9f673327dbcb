"""The device `cuda`: TVM generates CUDA, a compiler turns it into machine code, and NVIDIA's driver runs it. Compiling needs no
GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorUnavailable, BadConfig
from partita.accelerators.interface.accelerator import CompiledSubgraph
from partita.accelerators.interface.keys import Key, flag
from partita.accelerators.tvm.code.nvcc import compiler
from partita.accelerators.tvm.compiled.cuda_launched import CompiledCuda
from partita.accelerators.tvm.compiled.subgraph import RunsOn
from partita.accelerators.tvm.device import DTYPES, FAST, PRECISION_OR_TF32, TF32, GpuAccelerator
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine, gpu_machine
from partita.accelerators.tvm.run.cuda_arrays import CudaArray, put
from partita.accelerators.tvm.run.cuda_driver import arch_of, driver_of, gpus
from partita.accelerators.tvm.run.runtime import function, version
from partita.graph.graph import Graph
from partita.graph.types import Array

TENSOR_PRODUCT = "mma.sync"
"""Name of the tensor-core instruction in reports."""

DEFAULT_ARCH = "sm_80"
"""Architecture to compile for if there is no GPU."""


def _architecture(value: Any) -> str:
    """Validates the name of a GPU architecture; "" means the GPU's own."""
    named = isinstance(value, str) and value.startswith("sm_") and value[3:].rstrip("af").isdigit()
    if value != "" and not named:
        raise BadConfig(f"{value!r} is not a GPU architecture", where="ARCH of device 'cuda'", remedy='Write it as "sm_90"')
    return str(value)


class CudaAccelerator(GpuAccelerator):
    """An NVIDIA GPU; ARCH is "sm_90" or the like, by default the GPU's own, else sm_80.

    PRECISION is the type of products and of stored values: "fast" means bf16 if the GPU has tensor cores, and "tf32" stores
    float32, rounded when tensor cores multiply it. With CUDA_GRAPHS the launches of a run are recorded and replayed as one."""

    name = "cuda"
    config_keys = {
        **GpuAccelerator.config_keys,
        "ARCH": Key("", _architecture),
        "PRECISION": PRECISION_OR_TF32,
        "CUDA_GRAPHS": Key(True, flag),
    }

    def __init__(self) -> None:
        super().__init__()
        missing = self.why_no_compiler()
        if missing is not None and gpu_arch() is None:
            raise AcceleratorUnavailable(
                f"there is no GPU here, and nothing to compile for one: {missing}",
                remedy="Install the CUDA toolkit (nvcc on the PATH, or CUDA_HOME), or pip install cuda-bindings[all]",
            )

    def why_no_compiler(self) -> str | None:
        """Why this device cannot compile here and only runs models that were compiled before; None if it can."""
        if compiler() is None:
            return "there is no compiler for CUDA code: neither nvcc nor NVRTC is found"
        if super().why_no_compiler() is None and function("target.build.cuda") is None:
            return "this build of TVM generates no CUDA code: install TVM's own wheel, apache-tvm"
        return super().why_no_compiler()

    def why_not_here(self, config: Mapping[str, Any]) -> str | None:
        """The reason if there is no GPU and ARCH requests no code for another machine."""
        if config["ARCH"] or gpu_arch(config["DEVICE_ID"]) is not None:
            return None
        return "there is no GPU here; ARCH compiles for one elsewhere"

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """A GPU of the configured architecture."""
        arch = config["ARCH"] or gpu_arch(config["DEVICE_ID"]) or DEFAULT_ARCH
        return gpu_machine(arch, takes_tf32=config["PRECISION"] == TF32)

    def layout_options(self, machine: Machine) -> dict[str, Any]:
        """The element type, and tensor cores where the GPU has some."""
        used = Used(TENSOR_PRODUCT) if machine.gpu.has_tensor_cores else None
        note = f"products of float32 in TF32 by {TENSOR_PRODUCT}" if machine.rounds_products else ""
        return {"dtype": self.precision(machine), "int8_by": used, "halves_by": used, "why_wide": note}

    def precision(self, machine: Machine) -> str:
        """Element type of stored values on this GPU according to the configuration."""
        asked = self._config["PRECISION"]
        if asked == FAST:
            return "bfloat16" if machine.gpu.has_tensor_cores else "float32"
        return DTYPES[asked]

    def meaning(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """PRECISION as the type that it resolves to, or TF32 if products use it; `identity` has the architecture."""
        machine = self.machine(config)
        precision = TF32 if machine.rounds_products else self.configured(config).precision(machine)
        return {**{key: value for key, value in config.items() if key != "ARCH"}, "PRECISION": precision}

    def compiled_class(self) -> type[CompiledCuda]:
        """Machine code that the driver launches."""
        return CompiledCuda

    def runs_on(self, config: Mapping[str, Any]) -> RunsOn:
        """The GPU, and whether runs are recorded."""
        return attrs.evolve(super().runs_on(config), records=bool(config["CUDA_GRAPHS"]))

    def to_device(self, array: Array) -> CudaArray:
        """A copy of the array in the GPU's memory."""
        ordinal = int(self.get_config("DEVICE_ID"))
        driver = driver_of(ordinal)
        if driver is None:
            raise AcceleratorUnavailable(f"there is no GPU {ordinal} here", remedy="Give the model the array itself")
        return put(driver, np.asarray(array, order="C"))

    def free_bytes(self, device_id: str | None) -> int | None:
        """The GPU's free memory; 0 without a GPU."""
        driver = driver_of(int(device_id or self.get_config("DEVICE_ID")))
        return 0 if driver is None else driver.free

    def identity(self, config: Mapping[str, Any]) -> dict[str, str]:
        """TVM's version, and the architecture."""
        return {"library": f"apache-tvm {version()}".rstrip(), "gpu": self.machine(config).arch}

    def misfit(self, identity: Mapping[str, str], config: Mapping[str, Any]) -> str | None:
        """The reason if the GPU here has another architecture."""
        here, there = self.machine(config).arch, identity.get("gpu")
        return None if here == there else f"it was compiled for a GPU {there}, and here is {here}"

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any], weights: Sequence[Any] = ()) -> CompiledSubgraph:
        """The list of launches; an error in a process that cannot use the driver any more."""
        compiled = super().import_(data, graph, config, weights)
        assert isinstance(compiled, CompiledCuda)
        compiled.driver.check_process()
        return compiled

    def metrics(self) -> dict[str, Any]:
        """Metrics of the GPU here, or of the architecture that is compiled for."""
        driver = driver_of(int(self.get_config("DEVICE_ID")))
        title = f"{driver.title} ({driver.arch})" if driver else f"{DEFAULT_ARCH}, no GPU here: compiles, does not run"
        return {
            "AVAILABLE_DEVICES": [str(i) for i in range(gpus())],
            "FULL_DEVICE_NAME": f"TVM {version()} for {title}",
            "OPTIMIZATION_CAPABILITIES": ["FP32", "FP64", "FP16", "BF16", "INT8"],
        }


def gpu_arch(device_id: str = "0") -> str | None:
    """Architecture of the GPU with this index; None if there is none."""
    return arch_of(int(device_id)) if int(device_id) < gpus() else None
