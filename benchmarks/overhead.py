"""What a compiled model costs beside its engine: python -m benchmarks.overhead [--tiny]

1. A model of one op, called through `compile`, against the bare onnxruntime session with the same arrays (at most 15 µs more).
2. ResNet-50 cut into 20 subgraphs on one device against the uncut model (at most 3 % slower).
3. A value that goes from one host device to another: the array handed over is the very array that was made.
4. The same model in 20 subgraphs with a recorder against itself without one (at most 2 % of the time).
5. The model of one op with a recorder against itself without one, where counting a call is all that can be seen (at most 1 µs).

Times are medians of interleaved calls, so that what else the machine does hits both alike."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import partita as pt
from benchmarks.timing import clocked, interleaved
from partita.accelerators.interface.accelerator import CompiledSubgraph


def medians(calls: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Microseconds of each call, taken in turns."""
    contestants = {str(i): clocked(call) for i, call in enumerate(calls)}
    return [statistics.median(row) * 1e6 for row in interleaved(contestants, 0, rounds).values()]


def one_op(rounds: int) -> tuple[float, float]:
    """Microseconds of a call of a one-op model: the bare session, and ours."""
    import onnxruntime
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "relu")], "one", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    model = pt.compile(pt.load(proto), "onnxruntime")
    array = np.random.default_rng(0).standard_normal((1, 64), np.float32)
    bare, ours = medians([lambda: session.run(None, {"x": array}), lambda: model(array)], rounds)
    return bare, ours


def one_recorded_op(rounds: int, mode: str) -> tuple[float, float]:
    """Microseconds of a call of a one-op model: without a recorder, and with one; calls are timed by the hundred."""
    x = pt.variable("x", "float32", (1, 64))
    graph = pt.Graph([pt.op("Relu", x, name="relu")], name="one")
    array = np.random.default_rng(0).standard_normal((1, 64), np.float32)
    models = [pt.compile(graph, "onnxruntime", config) for config in (None, {"RECORD": mode})]

    def hundred(model: pt.CompiledModel) -> Callable[[], Any]:
        return lambda: [model(array) for _ in range(100)]

    plain, recording = medians([hundred(model) for model in models], rounds)
    return plain / 100, recording / 100


def cut(graph: pt.Graph, parts: int, device: str) -> pt.Graph:
    """The graph as `parts` calls on one device, cut where a single value crosses and engines fuse nothing."""
    graph = pt.apply_pass(graph, ["InferShape", "EliminateDead"])
    ops = [node for node in graph.nodes if node.is_op]
    ends = cuts(ops, parts)
    for i, node in enumerate(ops):
        node.affinity = f"part{sum(i > end for end in ends)}"
    partitioned = pt.apply_pass(graph, "PartitionGraph", growth="waves")
    for node in partitioned.nodes:
        if node.is_call:
            node.affinity = device
    return partitioned


def cuts(ops: Sequence[pt.Node], parts: int) -> list[int]:
    """The numbers of the ops after which to cut: `parts` - 1 of the narrow cuts, spread evenly."""
    number = {node: i for i, node in enumerate(ops)}
    reach = [0] * len(ops)
    for i, node in enumerate(ops):
        for entry in node.reads:
            if entry.node in number:
                reach[number[entry.node]] = i
    fused = {"Relu", "BatchNormalization", "Add", "Sum"}
    farthest, narrow = 0, []
    for i in range(len(ops) - 1):
        if farthest <= i and ops[i + 1].op not in fused:
            narrow.append(i)
        farthest = max(farthest, reach[i])
    return [narrow[k * len(narrow) // (parts - 1)] for k in range(parts - 1)]


def cut_model(name: str, parts: int, rounds: int, config: dict[str, Any]) -> tuple[float, float, float, int, float]:
    """Microseconds of a zoo model uncut, cut, and with the same pieces called by hand; their number; the error of the outputs.

    What the pieces lose by hand is the engine's: it fuses nothing across a cut, and brings each value into its plain layout."""
    array = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    whole = pt.compile(pt.load(f"zoo:{name}"), "onnxruntime", config)
    pieces = pt.compile(cut(pt.load(f"zoo:{name}"), parts, "onnxruntime"), "onnxruntime", config)
    bare = [unit.compiled for unit in pieces.units]

    def by_hand() -> np.ndarray:
        value = array
        for piece in bare:
            (value,) = piece.run([value])
        return value

    error = float(np.abs(pieces(array)[0] - whole(array)[0]).max())
    uncut, in_parts, alone = medians([lambda: whole(array), lambda: pieces(array), by_hand], rounds)
    return uncut, in_parts, alone, len(bare), error


class Watched(CompiledSubgraph):
    """A compiled subgraph that remembers which arrays it was given and which it made."""

    def __init__(self, inner: CompiledSubgraph) -> None:
        self.inner = inner
        self.alignment, self.concurrent = inner.alignment, inner.concurrent
        self.read: list[int] = []
        self.written: list[int] = []

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """Run the inner subgraph and note the arrays that go in and out."""
        outputs = self.inner.run(inputs, out)
        self.read += [address(array) for array in inputs]
        self.written += [address(array) for array in outputs]
        return outputs


def address(array: np.ndarray) -> int:
    """The address of the array's first element."""
    return array.__array_interface__["data"][0]


def hand_over(first: str, second: str) -> bool:
    """Does the second device read the memory that the first one wrote?"""
    x = pt.variable("x", "float32", (512, 512))
    y = pt.op("Relu", x, name="first")
    model = pt.compile(pt.Graph([pt.op("Exp", y, name="second")]), f"HETERO:{first},{second}", pin={"second": second})
    before, after = watched = [Watched(unit.compiled) for unit in model.units]
    for unit, watch in zip(model.units, watched, strict=True):
        unit.compiled = watch
    model(np.ones((512, 512), np.float32))
    return before.written == after.read


def recorder(name: str, parts: int, rounds: int, config: dict[str, Any], mode: str) -> tuple[float, float, int, int]:
    """What a recorder adds to the sum of all calls' times, its own share as it counts it, the calls looked at, and all calls."""
    array = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    pieces = cut(pt.load(f"zoo:{name}"), parts, "onnxruntime")
    plain = pt.compile(pieces, "onnxruntime", config)
    recording = pt.compile(pieces, "onnxruntime", {**config, "RECORD": mode})
    contestants = {"plain": clocked(lambda: plain(array)), "recording": clocked(lambda: recording(array))}
    times = {engine: sum(row) for engine, row in interleaved(contestants, 0, rounds).items()}
    recorded = recording.recorded
    assert recorded is not None
    return times["recording"] / times["plain"] - 1, recorded.share, recorded.looked_at, recorded.calls


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a small model, few rounds: shows that it works")
    parser.add_argument("--threads", type=int, default=0, help="the engine's threads; 1 disturbs least on a busy machine")
    args = parser.parse_args()
    tiny = args.tiny
    bare, ours = one_op(10 if tiny else 200)
    print(f"one op: bare onnxruntime {bare:.1f} µs, compiled {ours:.1f} µs, overhead {ours - bare:.1f} µs (at most 15)")
    for first, second in (("onnxruntime", "reference"), ("onnxruntime", "openvino"), ("openvino", "onnxruntime")):
        print(f"hand-over {first} -> {second}: {'no copy' if hand_over(first, second) else 'COPIED'}")
    name, parts, rounds = ("squeezenet", 5, 3) if tiny else ("resnet50", 20, 150)
    uncut, in_parts, by_hand, count, error = cut_model(name, parts, rounds, {"NUM_THREADS": args.threads})
    cost, own = in_parts / uncut - 1, in_parts / by_hand - 1
    print(f"{name}: uncut {uncut / 1e3:.2f} ms, in {count} subgraphs {in_parts / 1e3:.2f} ms ({cost:+.1%}, at most 3 %)")
    print(f"  the same pieces called by hand {by_hand / 1e3:.2f} ms: ours is {own:+.1%}; largest difference {error:.1e}")
    for mode in ("checksums", "nan"):
        more, share, looked_at, calls = recorder(name, parts, rounds, {"NUM_THREADS": args.threads}, mode)
        seen = f"{looked_at} of {calls} calls looked at"
        plain, counted = one_recorded_op(10 if tiny else 300, mode)
        print(f"  RECORD={mode}: {counted - plain:+.2f} µs a call of one op, {plain:.2f} µs without (at most 1 µs)")
        print(f"  RECORD={mode}: {more:+.1%} in all, {share:.2%} by its own clock (at most 2 %), {seen}")


if __name__ == "__main__":
    main()
