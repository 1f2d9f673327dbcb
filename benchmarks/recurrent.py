"""Recurrent layers on `cpu` beside onnxruntime and OpenVINO: python -m benchmarks.recurrent [--threads N] [--into PAGE] [--tiny]

The engines run in turns in one process, from numpy arrays to numpy arrays; the fastest call and the median are shown. With one
thread it is processor time, which other programs do not lengthen by taking the core.
Exits with 1 if a layer takes longer on `cpu` than on the faster of the two."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import numpy as np

import partita as pt
from benchmarks.machine import usable_cores
from benchmarks.tables import markdown, merge
from benchmarks.timing import clock_for
from partita.graph.writers.onnx import to_model
from partita.measuring.rounds import settle

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

Call = Callable[[], object]


@attrs.frozen
class Shape:
    """A stack of layers of one kind."""

    op: str
    layers: int
    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: int

    def __str__(self) -> str:
        both = " both ways" if self.directions == 2 else ""
        return f"{self.op} {self.layers} x {self.hidden}{both}, {self.steps} steps of {self.inputs}, batch {self.batch}"

    def graph(self) -> pt.Graph:
        """The layers, with random weights, as torch exports them."""
        random = np.random.default_rng(0)

        def weights(*sizes: int) -> pt.Node:
            return pt.constant((random.standard_normal(sizes) / np.sqrt(self.hidden)).astype("float32"))

        x = pt.variable("x", "float32", (self.steps, self.batch, self.inputs))
        value: pt.Node | pt.NodeEntry = x
        ways, rows = self.directions, GATES[self.op] * self.hidden
        for layer in range(self.layers):
            width = self.hidden * ways if layer else self.inputs
            given = weights(ways, rows, width), weights(ways, rows, self.hidden), weights(ways, 2 * rows)
            extra: dict[str, Any] = {"linear_before_reset": 1} if self.op == "GRU" else {}
            direction = "bidirectional" if ways == 2 else "forward"
            node = pt.op(self.op, value, *given, hidden_size=self.hidden, direction=direction, n_outputs=1, **extra)
            turned = pt.op("Transpose", node, perm=[0, 2, 1, 3])
            value = pt.op("Reshape", turned, pt.constant(np.array([0, 0, -1])))
        return pt.apply_pass(pt.Graph([value], inputs=[x]), "InferShape")


SHAPES = (
    Shape("LSTM", 2, 100, 1, 128, 128, 2),
    Shape("GRU", 1, 100, 1, 128, 128, 1),
    Shape("LSTM", 1, 50, 1, 256, 512, 1),
    Shape("LSTM", 1, 64, 16, 128, 256, 1),
    Shape("GRU", 2, 80, 8, 64, 200, 2),
    Shape("RNN", 1, 128, 4, 64, 256, 1),
)


def calls(shape: Shape, threads: int) -> Mapping[str, Call]:
    """A call of each engine, whose results were compared."""
    import onnxruntime
    import openvino

    graph = shape.graph()
    x = np.random.default_rng(1).standard_normal((shape.steps, shape.batch, shape.inputs)).astype("float32")
    data = to_model(graph).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(data), "CPU", settings).create_infer_request()
    ours = pt.compile(graph, "cpu", {"NUM_THREADS": threads})
    engines: dict[str, Callable[[], np.ndarray]] = {
        "partita": lambda: ours(x)[0],
        "onnxruntime": lambda: session.run(None, {"x": x})[0],
        "openvino": lambda: request.infer({0: x})[0],
    }
    wanted = engines["onnxruntime"]()
    for name, call in engines.items():
        if not np.allclose(call(), wanted, atol=1e-4):
            raise SystemExit(f"error: {name} computes {shape} otherwise than onnxruntime")
    return engines


def measure(
    engines: Mapping[str, Call], rounds: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """The microseconds of each call, engine by engine; they take turns of so many seconds."""
    taken: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, call in engines.items():
            settle()
            call()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                start = clock()
                call()
                taken[name].append((clock() - start) * 1e6)
    return taken


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--into", type=Path, help="a page of Markdown with the marks of the table, recurrent-1 for one thread")
    parser.add_argument("--tiny", action="store_true", help="the smallest run that shows that it works")
    args = parser.parse_args()
    rows, slow, clock = [], 0, clock_for(args.threads)
    shapes = [attrs.evolve(shape, steps=3, hidden=8, inputs=4) for shape in SHAPES[:1]] if args.tiny else SHAPES
    for shape in shapes:
        rounds, seconds = (2, 0.002) if args.tiny else (args.rounds, 0.04)
        taken = measure(calls(shape, args.threads), rounds, seconds, clock)
        best = {name: min(times) for name, times in taken.items()}
        rivals = min(best["onnxruntime"], best["openvino"])
        slow += best["partita"] > rivals
        cells = [f"{best[name]:.0f} ({median(times):.0f})" for name, times in taken.items()]
        ratios = [f"{best['partita'] / best[rival]:.2f}" for rival in ("onnxruntime", "openvino")]
        rows.append([str(shape), *cells, *ratios])
    header = ["layers", "partita µs, best (median)", "onnxruntime", "openvino", "to onnxruntime", "to openvino"]
    print(markdown(header, rows))
    if args.into:
        merge(args.into, f"recurrent-{args.threads}", header, rows)
    return 1 if slow and not args.tiny else 0


if __name__ == "__main__":
    sys.exit(main())
