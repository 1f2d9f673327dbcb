"""How loading, verifying, inferring and cleaning grow with the graph: python -m benchmarks.graph_scale [--nodes N ...]

Each size runs in a process of its own, so that its peak memory is its own. The exponent is the slope of total time over nodes
between the smallest size from 10,000 up and the largest."""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = (1_000, 10_000, 100_000, 1_000_000)
STAGES = ("load", "verify", "infer types", "eliminate dead")


def write_model(path: Path, nodes: int) -> None:
    """A chain of residual blocks of element-wise ops, one node in ten of them dead."""
    from onnx import NodeProto, TensorProto, helper

    nodes_made: list[NodeProto] = []
    value, i = "x", 0
    while len(nodes_made) < nodes:
        nodes_made += [
            helper.make_node("Relu", [value], [f"a{i}"], f"relu{i}"),
            helper.make_node("Add", [f"a{i}", "w"], [f"b{i}"], f"bias{i}"),
            helper.make_node("Sigmoid", [f"b{i}"], [f"c{i}"], f"sigmoid{i}"),
            helper.make_node("Mul", [f"b{i}", f"c{i}"], [f"d{i}"], f"gate{i}"),
            helper.make_node("Add", [f"d{i}", value], [f"e{i}"], f"residual{i}"),
        ]
        if i % 2:
            nodes_made[-1:] = [nodes_made[-1], helper.make_node("Neg", [f"c{i}"], [f"dead{i}"], f"dead{i}")]
        value = f"e{i}"
        i += 1
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])
    y = helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, 64])
    w = helper.make_tensor("w", TensorProto.FLOAT, [64], [0.5] * 64)
    graph = helper.make_graph(nodes_made, "scale", [x], [y], [w])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())


def measure(path: Path) -> dict[str, float]:
    """Seconds for each stage on this model, and the peak memory of the process in MiB."""
    import partita as pt
    from partita.graph.verify import verify

    seconds = {}
    clock = time.perf_counter()

    def lap(stage: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[stage] = now - clock
        clock = time.perf_counter()

    graph = pt.load(path)
    lap("load")
    verify(graph)
    lap("verify")
    graph = pt.apply_pass(graph, "InferShape", verify=False)
    lap("infer types")
    graph = pt.apply_pass(graph, "EliminateDead", verify=False)
    lap("eliminate dead")
    assert all(entry.type is not None for entry in graph.outputs)
    return {**seconds, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def in_own_process(nodes: int) -> dict[str, float]:
    """Measure in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scale.onnx"
        subprocess.run([sys.executable, "-m", "benchmarks.graph_scale", "--write", str(path), str(nodes)], check=True)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.graph_scale", "--measure", str(path)], check=True, capture_output=True, text=True
        )
    return json.loads(done.stdout)


def report(sizes: list[int]) -> None:
    """Measure each size and print the table."""
    print(f"{'nodes':>9} " + " ".join(f"{s:>15}" for s in STAGES) + f" {'total s':>9} {'MiB':>7}")
    totals = {}
    for nodes in sizes:
        row = in_own_process(nodes)
        totals[nodes] = sum(row[s] for s in STAGES)
        print(f"{nodes:>9} " + " ".join(f"{row[s]:>15.3f}" for s in STAGES) + f" {totals[nodes]:>9.2f} {row['MiB']:>7.0f}")
    low = min((n for n in sizes if n >= 10_000), default=sizes[0])
    if (high := sizes[-1]) > low:
        exponent = math.log(totals[high] / totals[low]) / math.log(high / low)
        print(f"exponent from {low} to {high} nodes: {exponent:.3f}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        write_model(Path(args.write[0]), int(args.write[1]))
    elif args.measure:
        print(json.dumps(measure(Path(args.measure))))
    else:
        report(args.nodes)


if __name__ == "__main__":
    main()
