"""The device `opencl`: any GPU or processor with an OpenCL driver. TVM generates OpenCL C; pyopencl launches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from partita.accelerators.tvm.compiled.launched import CompiledOpenCl
from partita.accelerators.tvm.device import GpuAccelerator
from partita.accelerators.tvm.machine.machine import Machine, opencl_machine
from partita.accelerators.tvm.run.opencl_arrays import OpenClArray, put
from partita.accelerators.tvm.run.opencl_driver import EXTENSIONS, Driver, drivers
from partita.accelerators.tvm.run.runtime import version
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import Array, TensorType


class OpenClAccelerator(GpuAccelerator):
    """An OpenCL device; DEVICE_ID is its index, GPUs first."""

    name = "opencl"

    def __init__(self) -> None:
        super().__init__()
        drivers()

    def to_device(self, array: Array) -> OpenClArray:
        """A copy of the array in a buffer on the device."""
        return put(self.driver, np.asarray(array, order="C"))

    @property
    def driver(self) -> Driver:
        """The configured device."""
        return drivers()[int(self.get_config("DEVICE_ID"))]

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """The device with its limits."""
        driver = drivers()[int(config["DEVICE_ID"])]
        return opencl_machine(driver.threads, driver.local_memory, driver.extensions)

    def supports(self, node: Node, graph: Graph) -> bool | str:
        """True if TVM compiles the op and the device has its element types, otherwise the reason."""
        return self._lacking(node) or super().supports(node, graph)

    def _lacking(self, node: Node) -> str | None:
        """Element type of the node that the device lacks, in words; None if it has all."""
        for entry in (*node.reads, *node.outputs):
            dtype = entry.type.dtype if isinstance(entry.type, TensorType) else ""
            extension = EXTENSIONS.get(dtype)
            if dtype == "bfloat16":
                return f"{entry.name!r} is bfloat16, which OpenCL does not have"
            if extension is not None and extension not in self.driver.extensions:
                return f"{entry.name!r} is {dtype}, and {self.driver.name} lacks {extension}"
        return None

    def compiled_class(self) -> type[CompiledOpenCl]:
        """Kernels that the driver launches."""
        return CompiledOpenCl

    def identity(self, config: Mapping[str, Any]) -> dict[str, str]:
        """TVM's version, and the limits that kernels rely on. Any driver builds the source, so no driver is named."""
        return {"library": f"apache-tvm {version()}".rstrip(), "opencl": self.machine(config).arch}

    def misfit(self, identity: Mapping[str, str], config: Mapping[str, Any]) -> str | None:
        """The reason why the code does not fit: smaller work-groups, less local memory, or a missing extension."""
        here = self.identity(config)["opencl"]
        threads, memory, extensions = _limits(here)
        needed = _limits(identity.get("opencl", ""))
        if needed[0] > threads or needed[1] > memory:
            wanted = f"{needed[0]} items and {needed[1]} bytes"
            return f"it was compiled for work-groups of {wanted}; here they have {threads} and {memory}"
        missing = sorted(needed[2] - extensions)
        return f"it was compiled for a device with {', '.join(missing)}" if missing else None

    def metrics(self) -> dict[str, Any]:
        """Name and element types of the device."""
        floats = {"FP16": EXTENSIONS["float16"], "FP64": EXTENSIONS["float64"]}
        capabilities = [name for name, extension in floats.items() if extension in self.driver.extensions]
        return {
            "AVAILABLE_DEVICES": [str(i) for i in range(len(drivers()))],
            "FULL_DEVICE_NAME": f"TVM {version()} for {self.driver.name}",
            "OPTIMIZATION_CAPABILITIES": ["FP32", *capabilities, "INT8"],
        }


def _limits(arch: str) -> tuple[int, int, frozenset[str]]:
    """Items and bytes of a work-group, and the extensions, in a machine's `arch`."""
    limits, *extensions = arch.split("+")
    threads, _, memory = limits.partition("x")
    return int(threads or 0), int(memory or 0), frozenset(extensions)
