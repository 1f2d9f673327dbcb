"""The device `cpu`: TVM and LLVM for the host's own instruction set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.interface.keys import Key, count
from partita.accelerators.process.cores import default_threads
from partita.accelerators.tvm.asked_precision import DTYPES, FAST, PRECISION, narrowed
from partita.accelerators.tvm.device import NOTES, TvmAccelerator
from partita.accelerators.tvm.machine.machine import Machine, host_cpu, host_machine, with_instruction
from partita.accelerators.tvm.machine.processor import host_features
from partita.accelerators.tvm.machine.special import bfloat_instruction, integer_instruction
from partita.accelerators.tvm.run.runtime import version
from partita.graph.graph import Graph


class CpuAccelerator(TvmAccelerator):
    """The host's processor; NUM_THREADS 0 means all cores that the process may use.

    INTEGERS and BFLOATS name the instructions for products of quantized values and of bfloat16; by default the fastest that the
    host has. PRECISION is the type of products and of stored values: "fast" means bf16 if the host has an instruction for it that
    is faster than float32's. With ANY_SIZE a subgraph with symbols is compiled once for all sizes, if all its kernels have a form
    for any."""

    name = "cpu"
    appends_caches = True
    config_keys = {
        **TvmAccelerator.config_keys,
        "NUM_THREADS": Key(0, count),
        "INTEGERS": Key("", integer_instruction),
        "BFLOATS": Key("", bfloat_instruction),
        "PRECISION": PRECISION,
    }

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """The host with the configured number of threads."""
        machine = with_instruction(host_machine(config["NUM_THREADS"] or default_threads()), config["INTEGERS"])
        return with_instruction(machine, config["BFLOATS"])

    def lay_out(self, graph: Graph, machine: Machine) -> Graph:
        """Signals of dynamic or few positions become images, taps that only meet padding are dropped, and recurrent layers are
        split in two. Quantized models use integers, with weights as narrow as stored. Scales and shifts are folded; convolutions
        get blocked layouts; values become 16-bit if requested; tables that products read are stored once."""
        from partita.accelerators.tvm.bodies.element_types import with_reasons
        from partita.accelerators.tvm.layouts.blocking import block
        from partita.accelerators.tvm.layouts.folding import fold_scales
        from partita.accelerators.tvm.layouts.kept_weights import pack_weights
        from partita.accelerators.tvm.layouts.outer_taps import drop_outer_taps
        from partita.accelerators.tvm.layouts.quantized_notes import quantized_notes
        from partita.accelerators.tvm.layouts.quantizing import quantize
        from partita.accelerators.tvm.layouts.recurring import project_inputs
        from partita.accelerators.tvm.layouts.shared_tables import share_tables
        from partita.accelerators.tvm.layouts.signals import as_images

        given = project_inputs(drop_outer_taps(as_images(graph, machine.lanes)))
        packed = pack_weights(quantize(given, machine), machine)
        quantized, wide = quantized_notes(given, packed, machine.instruction("int8"))
        held = super().lay_out(with_reasons(packed, wide), machine)
        laid_out, dtype = block(fold_scales(held), machine), self.precision(machine)
        if dtype == "float32":
            asked = self._config["PRECISION"]
            note = f"PRECISION {asked}: float32, since this processor multiplies nothing narrower faster"
            notes = (*quantized, note) if asked == FAST else quantized
            noted = laid_out.evolve(attrs={**laid_out.attrs, NOTES: notes}) if notes else laid_out
            return share_tables(noted, machine)
        return share_tables(narrowed(laid_out, dtype, machine, machine.instruction(dtype), quantized), machine)

    def precision(self, machine: Machine) -> str:
        """Element type of products on this machine according to the configuration."""
        asked = self._config["PRECISION"]
        if asked == FAST:
            from partita.accelerators.tvm.kernels.shared.instructions import is_faster

            return "bfloat16" if is_faster("bfloat16", machine) else "float32"
        return DTYPES[asked]

    def meaning(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """PRECISION as the type that it resolves to; `identity` has the number of threads. A requested instruction stays in the
        result, because unlike the default it is used even where it is slow."""
        precision = self.configured(config).precision(self.machine(config))
        others = {key: value for key, value in config.items() if key != "NUM_THREADS"}
        return {**others, "PRECISION": precision}

    def metrics(self) -> dict[str, Any]:
        """Metrics of the host, under LLVM's name for it."""
        from partita.accelerators.tvm.code.linking import can_link

        widest = next((name for name in ("avx512f", "avx2", "neon") if name in host_features()), "")
        return {
            "AVAILABLE_DEVICES": ["0"],
            "FULL_DEVICE_NAME": f"TVM {version()} for {host_cpu()}{widest and f' ({widest})'}"
            + ("" if can_link() else "; no linker here: what it compiles is neither cached nor exported"),
            "OPTIMIZATION_CAPABILITIES": ["FP32", "FP64", "FP16", "BF16", "INT8"],
        }
