"""What a GPU has to do for a model, judged without a GPU: python -m benchmarks.gpu_static [--models NAME ...] [--gpu a100]
[--precision f16] [--registers]

Each model is compiled for `cuda` as far as its launches: how many there are, on how many blocks, what they read and write. The
time is a roofline's: no kernel is faster than its arithmetic on the cores that it fills, than its bytes, and than a launch. It
says nothing of how good the code inside the kernels is. With --layers it lists the launches of each model. With --registers
every kernel is compiled to its end, by nvcc, and ptxas says what it takes."""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks.gpu_registers import Taken, can_assemble, taken
from benchmarks.models import NAMES, model
from benchmarks.progress import run, say
from benchmarks.tables import markdown, seconds
from benchmarks.work import flops
from partita.compare import PRECISIONS
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import NodeEntry
from partita.graph.types import TensorType, numpy_dtype
from partita.passes.infer import infer

if TYPE_CHECKING:
    from partita.accelerators.tvm.code.building import Built

LAUNCH = 2e-6
"""The seconds that a launch takes by itself, as NVIDIA's GPUs have them."""

FEW_BLOCKS = 100
"""A launch of fewer blocks leaves most of a GPU idle."""

TINY = 2e6
"""A launch of less arithmetic than this takes no longer on a few cores than its launch does."""

TENSOR_CORES = re.compile(r"mma_sync|ptx_mma|mma\.sync|wgmma")


@attrs.frozen(slots=True)
class Peak:
    """What a GPU does in a second at most, by its maker's data sheet."""

    arch: str
    cores: int
    flops: float
    """In float32, outside of the tensor cores."""
    tensor_flops: float
    """In float16 on the tensor cores."""
    bandwidth: float
    """Bytes to and from its memory."""

    def rate(self, tensor: bool, precision: str) -> float:
        """The operations in a second, on the tensor cores or outside of them. In TF32 these make half as many as in float16."""
        return self.tensor_flops / (2 if precision == "tf32" else 1) if tensor else self.flops


PEAKS = {
    "a100": Peak("sm_80", 108, 19.5e12, 312e12, 1.555e12),
    "h100": Peak("sm_90", 132, 66.9e12, 989e12, 3.35e12),
    "h200": Peak("sm_90", 132, 66.9e12, 989e12, 4.8e12),
}


@attrs.frozen(slots=True)
class Kernel:
    """One kernel of TensorIR as it is launched."""

    schedule: str
    launches: int
    blocks: int
    """The blocks of its largest launch."""
    threads: int
    """The threads of a block of that launch."""
    bytes: int
    """What it reads and writes, each value once."""
    tensor: bool
    """Does it multiply on tensor cores?"""


@attrs.frozen(slots=True)
class Judged:
    """A kernel, and what it does for a model."""

    ops: str
    kernel: Kernel
    flops: int

    @property
    def is_thin(self) -> bool:
        """Does it leave most of the GPU idle, with work for more?"""
        return self.kernel.blocks < FEW_BLOCKS and self.flops > TINY

    def time(self, peak: Peak, precision: str = "f32") -> float:
        """The seconds that it takes at least."""
        blocks = self.kernel.blocks
        filled = blocks / (math.ceil(blocks / peak.cores) * peak.cores)
        rate = peak.rate(self.kernel.tensor, precision)
        moving = self.kernel.bytes / (peak.bandwidth * min(1.0, blocks / peak.cores))
        return max(self.flops / (rate * filled), moving) + self.kernel.launches * LAUNCH


@attrs.frozen(slots=True, eq=False)
class Verdict:
    """A model's launches."""

    kernels: Sequence[Judged]
    least: int
    """The bytes of its inputs, outputs and weights as they are stored, which any program has to move."""
    seconds: float
    """How long it took to make the loops."""
    taken: Taken | None = None
    """What its kernels take at most; None where nobody asked."""

    @property
    def moved(self) -> int:
        """The bytes that all launches read and write."""
        return sum(judged.kernel.bytes for judged in self.kernels)

    @property
    def tensor_share(self) -> float:
        """The part of the arithmetic that is done on tensor cores."""
        return sum(k.flops for k in self.kernels if k.kernel.tensor) / max(1, sum(k.flops for k in self.kernels))

    def row(self, name: str, peak: Peak, precision: str = "f32") -> list[str]:
        """The model's line in the table."""
        total = sum(judged.time(peak, precision) for judged in self.kernels)
        launches = sum(judged.kernel.launches for judged in self.kernels)
        return [
            name, str(launches), str(sum(kernel.is_thin for kernel in self.kernels)),
            f"{self.moved / 2**20:.0f}", f"{self.moved / self.least:.1f}", f"{self.tensor_share:.0%}",
            seconds(total * 1e3), seconds(launches * LAUNCH * 1e3), f"{self.seconds:.0f}",
            *([] if self.taken is None else map(str, (self.taken.registers, self.taken.shared, self.taken.spilled))),
        ]


HEADER = ("model", "launches", f"thin: under {FEW_BLOCKS} blocks", "MiB moved", "of least", "tensor cores", "ms at least",
          "ms of launches", "s to make loops")

TAKEN = ("registers at most", "bytes shared at most", "bytes spilled at most")
"""The columns behind these where ptxas was asked."""


def judge(graph: Graph, arch: str, precision: str = "f32", registers: bool = False) -> Verdict:
    """Each kernel of the model as `cuda` launches it, with products of this PRECISION; what they take is asked of ptxas."""
    from partita.accelerators.interface.registry import accelerator
    from partita.accelerators.tvm.bodies.lifting import lift_weights
    from partita.accelerators.tvm.code.building import Built
    from partita.accelerators.tvm.compiled.assembling import pack_weights
    from partita.accelerators.tvm.compiled.step_list import StepAssembly
    from partita.accelerators.tvm.device import TvmAccelerator
    from partita.accelerators.tvm.lower.lowering import lower

    chosen = accelerator("cuda")
    config = chosen.full_config({"ARCH": arch, "PRECISION": precision})
    device = chosen.configured(config)
    assert isinstance(device, TvmAccelerator)
    machine, graph = device.machine(config), infer(graph, strict=False)
    start = time.perf_counter()
    fused = device.fused(graph, machine)
    lifted = lift_weights(fused)
    kernels_of: dict[str, Built] = {}
    for body in lifted.bodies.values():
        if body.key not in kernels_of:
            kernels_of[body.key] = Built(lower(body, machine), machine)
    bodies = {node: (body, kernels_of[body.key]) for node, body in lifted.bodies.items()}
    spent = time.perf_counter() - start
    least = _weights(fused) + sum(map(_bytes, {*(node[0] for node in graph.inputs), *graph.outputs}))
    pack_weights(lifted.weights, bodies)
    steps: dict[str, list[str]] = {}
    for step in StepAssembly(lifted.graph, bodies, lifted.weights, machine).run().steps:
        steps.setdefault(step.call, []).append(step.symbol)
    known: dict[str, Kernel] = {}
    judged = list[Judged]()
    for node, (_, built) in bodies.items():
        assert node.subgraph is not None
        inner = [one for one in node.subgraph.nodes if one.is_op]
        symbols = steps.get(node.name, ())
        for symbol in symbols:
            if symbol not in known:
                known[symbol] = launched(built, symbol)
        kernels = [known[symbol] for symbol in symbols]
        main = max(kernels, key=lambda kernel: (kernel.schedule not in SIDE, kernel.bytes), default=None)
        ops = "+".join(str(one.op) for one in inner)
        judged += [Judged(ops, kernel, flops(inner) if kernel is main else 0) for kernel in kernels]
    if not registers:
        return Verdict(judged, least, spent)
    return Verdict(judged, least, spent, taken({str(built.library.source) for built in kernels_of.values()}, arch))


def _weights(fused: Graph) -> int:
    """The bytes of the constants that a graph of calls reads, in the types in which they are stored. One that several read counts
    once."""
    return sum(map(_bytes, {node[0] for graph in graphs_in(fused) for node in graph.nodes if node.value is not None}))


SIDE = ("dlight.Fallback", "dlight.Transpose")
"""Schedules of kernels that move numbers or work on each alone: the arithmetic of a product belongs to the others."""


def _groups(launch: Any) -> int:
    """Its work-groups, whose number is known: all sizes are."""
    return math.prod(launch.groups)


def launched(built: Built, symbol: str) -> Kernel:
    """A kernel of a body as it is launched."""
    from partita.accelerators.tvm.code.launches import split_launches
    from partita.accelerators.tvm.lower.lowering import nameless
    from partita.accelerators.tvm.machine.library import compiling, tvm
    from partita.accelerators.tvm.machine.tvm_errors import quiet

    kernel, target = built.lowered.kernels()[symbol], built.machine.target
    with compiling.lock, quiet():
        module = tvm().IRModule({"main": nameless(kernel).with_attr("global_symbol", symbol)})
        on_device, plans = split_launches(module, target)
    plan = plans[symbol]
    largest = max(plan.launches, key=_groups)
    tensor = any(TENSOR_CORES.search(str(function.script())) is not None for function in on_device.values())
    moved = sum(map(_memory, kernel.params)) + 2 * sum(plan.scratch)
    sizes = _groups(largest), math.prod(largest.local)
    return Kernel(built.lowered.schedules[symbol], len(plan.launches), *sizes, moved, tensor)


def _memory(parameter: Any) -> int:
    """The bytes of a kernel's argument."""
    from partita.accelerators.tvm.machine.library import tvm

    kind = parameter.ty
    return math.prod(int(size) for size in kind.shape) * -(-tvm().DataType(str(kind.dtype)).bits // 8)


def _bytes(entry: NodeEntry) -> int:
    kind = entry.type
    if not isinstance(kind, TensorType) or kind.shape is None or not all(isinstance(size, int) for size in kind.shape):
        return 0
    return math.prod(kind.shape) * numpy_dtype(kind.dtype).itemsize  # type: ignore[arg-type]


def layers(verdict: Verdict, peak: Peak, precision: str = "f32") -> str:
    """The launches of a model, one a line."""
    lines = [
        [j.ops, j.kernel.schedule, str(j.kernel.blocks), str(j.kernel.threads), f"{j.flops / 1e6:.1f}",
         f"{j.kernel.bytes / 2**20:.2f}", f"{j.time(peak, precision) * 1e6:.1f}"]
        for j in verdict.kernels
    ]
    return markdown(("ops", "schedule", "blocks", "threads", "MFLOP", "MiB", "us at least"), lines)


def main() -> None:
    """Run the command line."""
    import partita as pt

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--gpu", default="a100", choices=PEAKS, help="the GPU whose cores and peaks are taken")
    parser.add_argument("--precision", default="f32", choices=PRECISIONS, help="the type of products and of what is stored")
    parser.add_argument("--registers", action="store_true", help="compile all kernels, and say what they take")
    parser.add_argument("--layers", action="store_true", help="list the launches of each model")
    args = parser.parse_args()
    if args.registers and not can_assemble():
        parser.error("--registers needs nvcc, which is not found: install the CUDA toolkit")
    peak, rows = PEAKS[args.gpu], []
    for name in args.models:
        verdict = judge(pt.load(model(name, args.batch).path), peak.arch, args.precision, args.registers)
        rows.append(verdict.row(name, peak, args.precision))
        say(" ".join(rows[-1]))
        if args.layers:
            print(layers(verdict, peak, args.precision))
    print(markdown((*HEADER, *TAKEN) if args.registers else HEADER, rows))


if __name__ == "__main__":
    run(main)
