"""The cost of Partita as a provider in onnxruntime: python -m benchmarks.onnxruntime_provider [--tiny]

Chains of cheap ops on 1×64 floats, of which onnxruntime keeps every second one, so that 1, 10 or 100 subgraphs run: the session
without the provider, the session with it, and the difference for each subgraph beside a call of the same op by `pt.compile` (at
most 20 µs more). Times are medians of interleaved calls, so that what else the machine does hits all alike."""

from __future__ import annotations

import argparse

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import partita as pt
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


def chain(parts: int) -> bytes:
    """Abs, Neg, Abs, Neg, ...: so many of each."""
    names = [f"v{i}" for i in range(2 * parts + 1)]
    nodes = [helper.make_node(("Abs", "Neg")[i % 2], [names[i]], [names[i + 1]], names[i]) for i in range(2 * parts)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()  # type: ignore[no-any-return]


def main() -> None:
    """Prints one line for each number of subgraphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="few rounds")
    rounds = 20 if parser.parse_args().tiny else 2000
    pt.register_accelerator(OnlyAbs)
    name = pt.register_with_onnxruntime("OnlyAbs", "only_abs")
    x = pt.variable("x", "float32", (1, 64))
    model = pt.compile(pt.Graph([pt.op("Abs", x)], [x]), "cpu")
    array = np.ones((1, 64), np.float32)
    for parts in (1, 10, 100):
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        content = chain(parts)
        plain, ours = (onnxruntime.InferenceSession(content, settings, providers=which) for which in ([CPU], [name, CPU]))
        calls = [lambda: plain.run(None, {"v0": array}), lambda: ours.run(None, {"v0": array}), lambda: model(array)]  # noqa: B023
        bare, with_it, own = medians(calls, max(20, rounds // parts))
        each = (with_it - bare) / parts
        print(
            f"{parts:4} subgraphs: {bare:8.1f} µs without, {with_it:8.1f} µs with the provider: {each:6.1f} µs each, "
            f"{each - own:.1f} more than the {own:.1f} of a call of our own"
        )


if __name__ == "__main__":
    main()
