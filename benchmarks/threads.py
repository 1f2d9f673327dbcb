"""What threads do to latency: python -m benchmarks.threads [MODEL] [--processes N] [--tiny]

Fresh processes, in each of which Partita and onnxruntime take turns on all cores: alone, then beside a rival, a process that does
nothing but count on one core. Then several callers at once. A run with two modes shows as a wide spread between processes."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.processes import module_command, run_json
from benchmarks.progress import say
from benchmarks.timing import clocked, interleaved

RIVAL = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
while True:
    pass
"""

CALLERS = (1, 2, 4)
"""So many callers come at once."""


@contextlib.contextmanager
def rival() -> Iterator[None]:
    """One other program is busy on one core."""
    process = subprocess.Popen([sys.executable, "-c", RIVAL])
    try:
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


def tiny_model() -> Any:
    """A network that is compiled in a second."""
    import partita as pt

    weights = np.random.default_rng(0).standard_normal((3, 192, 192)).astype("float32") / 14
    x = y = pt.variable("x", "float32", (64, 192))
    for weight in weights:
        y = pt.op("Relu", pt.op("MatMul", y, pt.constant(weight)))
    return pt.Graph([y], inputs=[x])


def values(kind: Any) -> np.ndarray[Any, Any]:
    """Numbers for an input; whole ones are one."""
    if kind.dtype == "float32":
        return np.random.default_rng(1).random(kind.shape, "float32")
    return np.ones(kind.shape, kind.dtype)


def measured(name: str, seconds: float) -> dict[str, Any]:
    """In this process: milliseconds of both alone and beside a rival, and calls a second of several callers."""
    import partita as pt

    graph = tiny_model() if name == "tiny" else pt.load(name)
    inputs = {node.name: values(node[0].type) for node in graph.inputs}
    models = {device: pt.compile(graph, device) for device in ("cpu", "onnxruntime")}
    for model in models.values():
        model(inputs)
    made: dict[str, Any] = {"alone": times(models, inputs, seconds)}
    with rival():
        made["rival"] = times(models, inputs, seconds)
    for count in CALLERS:
        rates = {device: rate(functools.partial(model, inputs), count, seconds / 2) for device, model in models.items()}
        made[f"callers {count}"] = rates
    return made


def times(models: dict[str, Any], inputs: Any, seconds: float) -> dict[str, float]:
    """Median milliseconds, the models taking turns."""
    found = interleaved({device: clocked(functools.partial(model, inputs)) for device, model in models.items()}, seconds)
    return {device: statistics.median(taken) * 1e3 for device, taken in found.items()}


def rate(call: Callable[[], Any], callers: int, seconds: float) -> float:
    """Calls a second, of so many callers that do nothing else."""
    end = time.perf_counter() + seconds

    def caller(_: int) -> int:
        count = 0
        while time.perf_counter() < end:
            call()
            count += 1
        return count

    with ThreadPoolExecutor(callers) as pool:
        return sum(pool.map(caller, range(callers))) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="zoo:resnet50")
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each measurement")
    parser.add_argument("--tiny", action="store_true", help="a small model, two processes, no time")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tiny:
        options.model, options.processes, options.seconds = "tiny", 2, 0.1
    if options.one:
        print(json.dumps(measured(options.model, options.seconds)))
        return
    words = [options.model, "--seconds", str(options.seconds), "--one"]
    found = []
    for number in range(options.processes):
        found.append(run_json(module_command("benchmarks.threads", words), 600, dict(os.environ)))
        say(f"process {number + 1} of {options.processes}: {found[-1]['alone']}")
    print(table(options.model, found))


def table(model: str, found: list[dict[str, Any]]) -> str:
    """The medians over all processes, and how far apart the processes are."""
    lines = [
        f"{model}, {len(found)} fresh processes",
        "",
        "| | cpu | onnxruntime | cpu / onnxruntime | slowest / fastest process: cpu | onnxruntime |",
        "|---|---|---|---|---|---|",
    ]
    for case in found[0]:
        ours, theirs = ([run[case][device] for run in found] for device in ("cpu", "onnxruntime"))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs))
        unit = "calls/s" if case.startswith("callers") else "ms"
        lines.append(
            f"| {case}, {unit} | {statistics.median(ours):.2f} | {statistics.median(theirs):.2f} | {ratio:.2f} "
            f"| {max(ours) / min(ours):.2f} | {max(theirs) / min(theirs):.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
