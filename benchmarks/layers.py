"""Where the time goes, kernel by kernel: python -m benchmarks.layers MODEL ... [--threads N] [--batch N] [--worst N] [--publish]

MODEL is one of the benchmarks' own, or an ONNX file. For each fused kernel of Partita's `cpu`: its time, what it computes or
moves in it and how much of the machine's measured peak that is, and the time that onnxruntime spends on the same nodes, sorted by
what could be won. Times are the least of several profiled runs, Partita's and onnxruntime's in turns. Bytes count what crosses
a kernel's border once; what caches hold can come faster than the peak of memory."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np

import partita as pt
from benchmarks import publish, results, tables
from benchmarks.machine import usable_cores
from benchmarks.models import NAMES, Model, model
from benchmarks.onnxruntime_nodes import Micros, OnnxruntimeNodes
from benchmarks.peak import Peak, describe, peak
from benchmarks.progress import run
from benchmarks.tables import markdown
from benchmarks.work import flops, traffic
from partita.graph.node import Node
from partita.measuring.rounds import settle


@attrs.frozen
class Layer:
    """The measurement of one kernel."""

    name: str
    """Its name in profiles."""
    nodes: tuple[Node, ...]
    """The model's ops that it computes."""
    schedule: str
    """Its template."""
    micros: float
    """Its microseconds in the fastest run."""
    theirs: float
    """The microseconds that onnxruntime spends on the same nodes; 0 where it fuses them into nodes of another kernel."""
    flops: int
    """Operations."""
    bytes: int
    """Moved at least."""

    @property
    def to_win(self) -> float:
        """Microseconds that a kernel as fast as theirs would save."""
        return self.micros - self.theirs

    def cells(self, most: Peak) -> list[str]:
        """A line of the table: of both rates only the one that is nearer to its peak."""
        compute, memory = self.flops / self.micros / 1e3, self.bytes / self.micros / 1e3
        busy, idle = compute / most.gflops, memory / most.gigabytes
        rate = f"{compute:.1f} GFLOP/s" if busy >= idle else f"{memory:.1f} GB/s"
        theirs = f"{self.theirs:.0f}" if self.theirs else "fused"
        ops = "+".join(node.op or "" for node in self.nodes[:4]) + ("+…" if len(self.nodes) > 4 else "")
        first = self.nodes[0].name if self.nodes else self.name
        return [first, ops, self.schedule, f"{self.micros:.0f}", rate, f"{max(busy, idle):.0%}", theirs, f"{self.to_win:+.0f}"]


def measure(path: Path, inputs: Mapping[str, np.ndarray], threads: int, rounds: int) -> tuple[list[Layer], float]:
    """The layers, the one with the most to win first, and the time of onnxruntime's that belongs to none."""
    graph = pt.apply_pass(pt.load(path), "InferShape")
    ours = pt.compile(pt.load(path), "cpu", {"NUM_THREADS": threads})
    micros: dict[str, float] = {}
    with OnnxruntimeNodes(path, threads) as theirs:
        for _ in range(rounds):
            theirs.run(inputs)
            settle()
            ours(dict(inputs))
            for span in ours.profile(dict(inputs)).spans:
                for row in span.rows:
                    micros[row.node] = min(row.real_us, micros.get(row.node, row.real_us))
        spent, unknown = theirs.by_node(graph)
    nodes = {node.name: node for node in graph.nodes if node.is_op}
    kernels = ours.kernels()
    owner = {name: kernel.name for kernel in kernels for name in kernel.nodes}
    parts: Micros = defaultdict(float)
    for name, taken in spent.items():
        parts[_nearest(nodes[name], owner)] += taken
    layers = []
    for kernel in kernels:
        known = tuple(nodes[name] for name in kernel.nodes if name in nodes)
        taken = max((micros[name] for name in (kernel.name, *kernel.nodes) if name in micros), default=0.0)
        layers.append(Layer(kernel.name, known, kernel.schedule, taken, parts[kernel.name], flops(known), traffic(graph, known)))
    return sorted(layers, key=lambda layer: -layer.to_win), unknown + parts[""]


def _nearest(node: Node, owner: Mapping[str, str]) -> str:
    """The kernel that computes the node, or, if the node was folded away, the one that computes what it reads; "" if
    there is none.
    """
    while node.name not in owner:
        reads = [entry.node for entry in node.reads if entry.node.is_op]
        if not reads:
            return ""
        node = reads[0]
    return owner[node.name]


def report(layers: Sequence[Layer], unknown: float, most: Peak, worst: int | None = None) -> str:
    """The table, whole or so many lines of it, and the sums."""
    header = ["first node", "ops", "kernel", "µs", "rate", "of peak", "onnxruntime µs", "to win µs"]
    ours, theirs = sum(layer.micros for layer in layers), sum(layer.theirs for layer in layers)
    return "\n\n".join(
        [
            markdown(header, [layer.cells(most) for layer in layers[:worst]]),
            f"{len(layers)} kernels, {ours:.0f} µs; onnxruntime {theirs:.0f} µs on the same nodes, and {unknown:.0f} µs on what"
            f" has no counterpart (reorders). {describe(most)}",
        ]
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["squeezenet"], metavar="MODEL", help=f"{', '.join(NAMES)}; or a file")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worst", type=int, metavar="N", help="only the N kernels that most could be won from")
    parser.add_argument("--publish", action="store_true", help="write the tables of the documentation too")
    parser.add_argument("--tiny", action="store_true", help="the smallest run that shows that it works")
    args = parser.parse_args()
    most = peak(args.threads, 1000, 16) if args.tiny else peak(args.threads)
    texts = [_text(name, args, most) for name in args.models]
    print("\n\n".join(texts))
    if args.publish:
        publish.put(publish.TABLES, {"layers": "\n\n".join([*texts, tables.about(results.section([]))])})


def _text(name: str, args: argparse.Namespace, most: Peak) -> str:
    case_model = model(name, args.batch) if name in NAMES else Model(name, args.batch, Path(name))
    layers, unknown = measure(case_model.path, case_model.inputs(), args.threads, 3 if args.tiny else args.rounds)
    text = report(layers, unknown, most, args.worst)
    return text if len(args.models) == 1 else f"**{name}**\n\n{text}"


if __name__ == "__main__":
    run(main)
