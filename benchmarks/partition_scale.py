"""How long PartitionGraph takes: python -m benchmarks.partition_scale --shape residual --nodes 50000 --growth largest

Prints the seconds of processor time of the whole pass and its stages (plan: growth; check; splice: the rest, from the index to
the new graph), the number of subgraphs, and the peak memory. The stages are parts of one run, so none is less than zero. Each
run has a process of its own. Several sizes also give the exponent: the slope of time over nodes between the smallest size from
10,000 up and the largest. `--growth python` is a user's selector in Python, by walk."""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.shapes import SHAPES
from partita.graph import Graph, Node, NodeEntry
from partita.graph.gc_pause import collector_paused
from partita.partition import ContainOpSelector, PatternProperty, SubgraphProperty, SubgraphSelector, planner
from partita.partition.calls import CallMaker
from partita.partition.partition_graph import partition_graph
from partita.partition.planner import Planner

DEVICE_OPS = ("Sigmoid", "Tanh", "Erf", "Exp")
"""The op of a node by its device; with more devices than one the nodes also get affinities."""

HOST_OP = "Softsign"
"""The op of a node that no device takes."""

GROWTHS = ("largest", "walk", "python", "waves", "seed")


class PythonSelector(SubgraphSelector):
    """A selector as a user writes it, in Python."""

    def select(self, node: Node) -> bool:
        return node.op != HOST_OP

    def select_input(self, cur: Node, new: Node) -> bool:
        return new.op == cur.op

    def select_output(self, cur: Node, new: Node) -> bool:
        return new.op == cur.op


class PythonProperty(SubgraphProperty):
    """The property of that selector."""

    def create_subgraph_selector(self) -> SubgraphSelector:
        return PythonSelector()


def graph_of(preds: Sequence[Sequence[int]], color: Sequence[int | None]) -> Graph:
    """The shape as a graph; nobody computes it, so the number of inputs is of no matter."""
    several = len(set(color) - {None}) > 1
    with collector_paused():
        x = Node("x", None, output_names=("x",), output_types=(None,))
        nodes: list[Node] = []
        used = bytearray(len(preds))
        for v, producers in enumerate(preds):
            for u in producers:
                used[u] = 1
            read = tuple([NodeEntry(nodes[u], 0) for u in producers]) or (NodeEntry(x, 0),)
            device = color[v]
            op = HOST_OP if device is None else DEVICE_OPS[device]
            affinity = f"device{device}" if several and device is not None else None
            nodes.append(Node(f"n{v}", op, read, output_names=(f"v{v}",), output_types=(None,), affinity=affinity))
        return Graph([NodeEntry(node, 0) for node, u in zip(nodes, used, strict=True) if not u], [x])


def options_for(growth: str, several: bool) -> dict[str, Any]:
    """The options that the pass is called with."""
    if growth == "python":
        return {"subgraph_property": PythonProperty()}
    selector = ContainOpSelector() if several else ContainOpSelector(DEVICE_OPS[:1])
    return {"subgraph_property": PatternProperty(selector), "growth": growth}


@contextmanager
def timed(owner: Any, name: str) -> Iterator[list[float]]:
    """Inside, the seconds of processor time of each call of the owner's function are listed."""
    before, seconds = getattr(owner, name), []

    def call(*arguments: Any, **options: Any) -> Any:
        clock = time.process_time()
        try:
            return before(*arguments, **options)
        finally:
            seconds.append(time.process_time() - clock)

    setattr(owner, name, call)
    try:
        yield seconds
    finally:
        setattr(owner, name, before)


def measure(shape: str, nodes: int, growth: str) -> dict[str, float]:
    """Seconds of processor time of the whole pass and of its stages, the number of subgraphs, and the peak memory in MiB."""
    preds, color = SHAPES[shape](nodes)
    g = graph_of(preds, color)
    options = options_for(growth, len(set(color) - {None}) > 1)
    planning, making, checking = timed(Planner, "run"), timed(CallMaker, "make"), timed(planner, "check_partition")
    with planning as plans, making as calls, checking as checks:
        clock = time.process_time()
        partitioned = partition_graph(g, **options)
        whole = time.process_time() - clock
    check = sum(checks)
    plan = sum(plans) - sum(calls) - check
    return {
        "whole": whole,
        "plan": plan,
        "check": check,
        "splice": whole - plan - check,
        "groups": sum(node.is_call for node in partitioned.nodes),
        "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_own_process(shape: str, nodes: int, growth: str) -> dict[str, float]:
    """The same in a fresh process."""
    arguments = ["--shape", shape, "--nodes", str(nodes), "--growth", growth, "--measure"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.partition_scale", *arguments], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def report(shapes: Sequence[str], sizes: Sequence[int], growth: str) -> None:
    """Measure each shape at each size and print the table."""
    print(f"{'shape':<12} {'nodes':>9} {'whole s':>8} {'plan s':>8} {'check s':>8} {'splice s':>8} {'groups':>8} {'MiB':>6}")
    for shape in shapes:
        totals = {}
        for nodes in sizes:
            row = in_own_process(shape, nodes, growth)
            totals[nodes] = row["whole"]
            times = " ".join(f"{row[stage]:>8.3f}" for stage in ("whole", "plan", "check", "splice"))
            print(f"{shape:<12} {nodes:>9} {times} {row['groups']:>8.0f} {row['MiB']:>6.0f}", flush=True)
        low = min((n for n in sizes if n >= 10_000), default=sizes[0])
        if sizes[-1] > low:
            slope = math.log(totals[sizes[-1]] / totals[low]) / math.log(sizes[-1] / low)
            print(f"{shape:<12} exponent from {low} to {sizes[-1]} nodes: {slope:.3f}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", default=["residual", "holes", "random"], choices=[*SHAPES, "all"], metavar="SHAPE",
                        help=f"one of {', '.join(SHAPES)}; or all")
    parser.add_argument("--nodes", type=int, nargs="+", default=[50_000])
    parser.add_argument("--growth", default="largest", choices=GROWTHS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.shape[0], args.nodes[0], args.growth)))
    else:
        report(list(SHAPES) if "all" in args.shape else args.shape, args.nodes, args.growth)


if __name__ == "__main__":
    main()
