"""The device `cpu`: TVM and LLVM for the host's own instruction set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerators.interface.keys import Key, count
from accelerators.tvm.device import TvmAccelerator
from accelerators.tvm.layouts.blocking import block
from accelerators.tvm.layouts.folding import fold_scales
from accelerators.tvm.layouts.kept_weights import pack_weights
from accelerators.tvm.layouts.quantizing import quantize
from accelerators.tvm.machine.machine import Machine, host_cpu, host_machine, with_instruction
from accelerators.tvm.machine.processor import host_features
from accelerators.tvm.machine.special import integer_instruction
from accelerators.tvm.run.cores import default_threads
from accelerators.tvm.run.runtime import version
from graph.graph import Graph


class CpuAccelerator(TvmAccelerator):
    """The host's processor; NUM_THREADS 0 means all cores that the process may use.

    INTEGERS names the instruction that multiplies quantized numbers; without a name it is the fastest that the host has."""

    name = "cpu"
    config_keys = {**TvmAccelerator.config_keys, "NUM_THREADS": Key(0, count), "INTEGERS": Key("", integer_instruction)}

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """The host with so many threads."""
        return with_instruction(host_machine(config["NUM_THREADS"] or default_threads()), config["INTEGERS"])

    def lay_out(self, graph: Graph, machine: Machine) -> Graph:
        """Integers where a model is quantized, and its weights as narrow as they are stored; scales and shifts folded; blocked
        layouts where convolutions are."""
        return block(fold_scales(super().lay_out(pack_weights(quantize(graph, machine), machine), machine)), machine)

    def metrics(self) -> dict[str, Any]:
        """The metrics of the host, under LLVM's name for it."""
        widest = next((name for name in ("avx512f", "avx2", "neon") if name in host_features()), "")
        return {
            "AVAILABLE_DEVICES": ["0"],
            "FULL_DEVICE_NAME": f"TVM {version()} for {host_cpu()}{widest and f' ({widest})'}",
            "OPTIMIZATION_CAPABILITIES": ["FP32", "FP64", "FP16", "INT8"],
        }
