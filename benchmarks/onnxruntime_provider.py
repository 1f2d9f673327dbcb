"""The cost of Partita as a provider in onnxruntime: python -m benchmarks.onnxruntime_provider [--tiny] [MODEL ...]

Chains of cheap ops on 1×64 floats, of which onnxruntime keeps every second one, so that 1, 10 or 100 subgraphs run: the session
without the provider, and what each subgraph adds as machine code (at most 2 µs more than a call of the same op by `pt.compile`)
and through Python (at most 20 µs more). Of a model, a file or `zoo:NAME`: onnxruntime alone, `pt.compile` on `cpu`, and the
session with the provider (at most 1.03 of the former), on one thread.
Times are medians of interleaved calls, so that what else the machine does hits all alike."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import partita as pt
from benchmarks.models import read_inputs
from benchmarks.overhead import medians

CPU = "CPUExecutionProvider"


class OnlyAbs(pt.Accelerator):
    """The device `cpu` for Abs alone."""

    name = "only_abs"
    compiled: pt.CompiledSubgraph | None = None
    """The one that all subgraphs share, since they are alike."""

    def supports(self, node: pt.Node, graph: pt.Graph) -> bool | str:
        return node.op == "Abs" or "it has Abs alone"

    def compile(self, graph: pt.Graph, config: object) -> pt.CompiledSubgraph:
        self.compiled = self.compiled or pt.accelerator("cpu").compile(graph, {})
        return self.compiled


class AbsInPython(OnlyAbs):
    """The same, called by Python."""

    name = "abs_in_python"

    def compile(self, graph: pt.Graph, config: object) -> pt.CompiledSubgraph:
        return Through(super().compile(graph, config))


class Through(pt.CompiledSubgraph):
    """Calls another subgraph."""

    concurrent = True

    def __init__(self, inner: pt.CompiledSubgraph) -> None:
        self.inner, self.alignment = inner, inner.alignment

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """Run it."""
        return self.inner.run(inputs, out)


def chain(parts: int) -> bytes:
    """Abs, Neg, Abs, Neg, ...: so many of each."""
    names = [f"v{i}" for i in range(2 * parts + 1)]
    nodes = [helper.make_node(("Abs", "Neg")[i % 2], [names[i]], [names[i + 1]], names[i]) for i in range(2 * parts)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()  # type: ignore[no-any-return]


def session(model: bytes | str, *providers: str, optimized: bool = True) -> onnxruntime.InferenceSession:
    """A session on one thread."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    if not optimized:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, settings, providers=[*providers, CPU])


def chains(rounds: int) -> None:
    """Prints one line for each number of subgraphs."""
    native, python = (register(device) for device in (OnlyAbs, AbsInPython))
    x = pt.variable("x", "float32", (1, 64))
    model = pt.compile(pt.Graph([pt.op("Abs", x)], [x]), "cpu")
    array = np.ones((1, 64), np.float32)
    print("| subgraphs | onnxruntime alone | machine code | through Python | a call of our own |\n|---:|---:|---:|---:|---:|")
    for parts in (1, 10, 100):
        content = chain(parts)
        sessions = [session(content, *providers, optimized=False) for providers in ((), (native,), (python,))]
        calls = [lambda one=one: one.run(None, {"v0": array}) for one in sessions]
        bare, fast, slow, own = medians([*calls, lambda: model(array)], max(20, rounds // parts))
        each = " | ".join(f"{value:.1f} µs, {(value - bare) / parts:.1f} each" for value in (fast, slow))
        print(f"| {parts} | {bare:.1f} µs | {each} | {own:.1f} µs |")


def register(device: type[pt.Accelerator]) -> str:
    """The name of the provider that runs this device."""
    pt.register_accelerator(device)
    return pt.register_with_onnxruntime(device.__name__, device.name)


def model_line(name: str, provider: str, rounds: int) -> str:
    """The times of a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(name)
        if name.startswith("zoo:"):
            path = Path(folder, "model.onnx")
            pt.save(pt.load(name), path)
        feeds = read_inputs(path)
        alone, ours = session(str(path)), session(str(path), provider)
        model = pt.compile(pt.load(path), "cpu", {"NUM_THREADS": 1})
    calls = [lambda: alone.run(None, feeds), lambda: model(feeds), lambda: ours.run(None, feeds)]
    bare, own, inside = medians(calls, rounds)
    times = " | ".join(f"{time / 1e3:.2f} ms" for time in (bare, own, inside))
    return f"| {name} | {times} | {inside / own:.3f} |"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="few rounds")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="an ONNX file, or zoo:NAME")
    args = parser.parse_args()
    chains(20 if args.tiny else 2000)
    if args.models:
        provider = pt.register_with_onnxruntime("Cpu", "cpu", {"NUM_THREADS": 1})
        print("\n| model | onnxruntime alone | our own | with the provider | of our own |\n|:---|---:|---:|---:|---:|")
        for name in args.models:
            print(model_line(name, provider, 4 if args.tiny else 60), flush=True)


if __name__ == "__main__":
    main()
