"""The device `cpu`: TVM and LLVM for the host's own instruction set, or for another processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from partita.accelerators.errors import NotSupported
from partita.accelerators.interface.accelerator import TunedKernel
from partita.accelerators.interface.keys import Key, count
from partita.accelerators.process.cores import default_threads
from partita.accelerators.tvm.device import DTYPES, FAST, PRECISION, TvmAccelerator, skipping
from partita.accelerators.tvm.machine.instructions import bfloat_instruction, integer_instruction
from partita.accelerators.tvm.machine.machine import Machine, host_cpu, host_machine, named_machine, with_instruction
from partita.accelerators.tvm.machine.processor import host_features, processor_named
from partita.accelerators.tvm.run.runtime import version
from partita.graph.graph import Graph

PASSES = (
    "CheckIndices",
    "LiftConv1d",
    "DropOuterTaps",
    "ProjectInputs",
    "FindProducts",
    "DropNanTests",
    "TabulateBytes",
    "Quantize",
    "PackWeights",
    "ReportProducts",
    "ReleaseWeights",
    "FoldScales",
    "BlockChannels",
    "NarrowTypes",
    "ShareTables",
    "SpreadGemms",
    "MergeProjections",
    "FuseKernels",
)
"""The passes between a subgraph that is prepared and its kernels."""


class CpuAccelerator(TvmAccelerator):
    """The host's processor; NUM_THREADS 0 means all cores that the process may use. ARCH names another processor to compile for:
    one of a table, or an architecture with extensions, as "aarch64+i8mm+bf16".

    INTEGERS and BFLOATS name the instructions for products of quantized values and of bfloat16; by default the fastest that the
    host has. PRECISION is the type of products and of stored values: "fast" means bf16 if the host has an instruction for it that
    is faster than float32's. With ANY_SIZE a subgraph with symbols is compiled once for all sizes, if all its kernels have a form
    for any."""

    name = "cpu"
    passes = PASSES
    appends_caches = True
    config_keys = {
        **TvmAccelerator.config_keys,
        "ARCH": Key("", processor_named),
        "NUM_THREADS": Key(0, count),
        "INTEGERS": Key("", integer_instruction),
        "BFLOATS": Key("", bfloat_instruction),
        "PRECISION": PRECISION,
        "SKIP_PASSES": Key((), skipping(PASSES)),
    }

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """The host or the named processor, with the configured number of threads."""
        threads, arch = config["NUM_THREADS"], config["ARCH"]
        machine = named_machine(arch, threads) if arch else host_machine(threads or default_threads())
        return with_instruction(with_instruction(machine, config["INTEGERS"]), config["BFLOATS"])

    def machine_here(self, config: Mapping[str, Any]) -> Machine:
        """The machine with the number of threads here; a named processor was planned for with its own number of cores."""
        return attrs.evolve(self.machine(config), threads=config["NUM_THREADS"] or default_threads())

    def tune(self, graph: Graph, config: Mapping[str, Any], deadline: float, shown: Callable[[TunedKernel], None]) -> None:
        """Tune the kernels; NotSupported for a processor that is elsewhere."""
        machine = self.machine(config)
        if not machine.is_here:
            cause = f"kernels for {machine.arch} ({machine.triple}) cannot be measured here"
            raise NotSupported(cause, where="ARCH of device 'cpu'", remedy="Tune on such a machine, or leave ARCH out")
        super().tune(graph, config, deadline, shown)

    def layout_options(self, machine: Machine) -> dict[str, Any]:
        """The processor's instructions for bytes and for two bytes, and the element type."""
        dtype = self.precision(machine)
        asked, halves = self._config["PRECISION"], machine.instruction(dtype) if dtype != "float32" else None
        note = f"PRECISION {asked}: float32, since this processor multiplies nothing narrower faster" if asked == FAST else ""
        return {"dtype": dtype, "int8_by": machine.instruction("int8"), "halves_by": halves, "why_wide": note}

    def precision(self, machine: Machine) -> str:
        """Element type of products on this machine according to the configuration."""
        asked = self._config["PRECISION"]
        if asked == FAST:
            from partita.accelerators.tvm.kernels.contraction.instruction_meanings import is_faster  # start-up

            return "bfloat16" if is_faster("bfloat16", machine) else "float32"
        return DTYPES[asked]

    def meaning(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """PRECISION as the type that it resolves to; `identity` has the processor and the number of threads. A requested
        instruction stays in the result, because unlike the default it is used even where it is slow."""
        precision = self.configured(config).precision(self.machine(config))
        others = {key: value for key, value in config.items() if key not in ("ARCH", "NUM_THREADS")}
        return {**others, "PRECISION": precision}

    def metrics(self) -> dict[str, Any]:
        """Metrics of the host, under LLVM's name for it."""
        from partita.accelerators.tvm.code.linking import can_link  # start-up

        widest = next((name for name in ("avx512f", "avx2", "neon") if name in host_features()), "")
        return {
            "AVAILABLE_DEVICES": ["0"],
            "FULL_DEVICE_NAME": f"TVM {version() or 'runtime'} for {host_cpu()}{widest and f' ({widest})'}"
            + ("" if can_link() else "; no linker here: what it compiles is neither cached nor exported"),
            "OPTIMIZATION_CAPABILITIES": ["FP32", "FP64", "FP16", "BF16", "INT8"],
        }
