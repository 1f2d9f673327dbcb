"""What threads do to latency: python -m benchmarks.threads [--models NAME ...] [--processes N] [--tiny]

Fresh processes, in each of which Partita and onnxruntime take turns on all cores: alone, then beside a rival, a process that does
nothing but count on one core. In the first few, several callers at once too. A model that runs in two modes shows: some
processes' medians are then far from the others'."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks import publish, results, tables
from benchmarks.machine import OtherLoad, usable_cores
from benchmarks.models import NAMES, model
from benchmarks.models.files import read_inputs
from benchmarks.processes import CutOff, Failed, module_command, run_json
from benchmarks.progress import Progress, run, say
from benchmarks.timing import clocked, interleaved, ratio, summary

RIVAL = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
while True:
    pass
"""

DEVICES = {"partita": "cpu", "onnxruntime": "onnxruntime"}
"""The engines, and Partita's devices that they are."""

CALLERS = (1, 2, 4)
"""The numbers of callers that come at once."""

WITH_CALLERS = 3
"""The number of processes in which several callers are measured."""

LIMIT = 600.0
"""Seconds after which a process is given up."""

Found = dict[str, dict[str, list[float]]]
"""The seconds of each round, by situation and engine."""


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


def prepared(name: str) -> tuple[Any, Mapping[str, np.ndarray]]:
    """A model's graph and what it is fed."""
    import partita as pt

    if name == "tiny":
        return tiny_model(), {"x": np.random.default_rng(1).random((64, 192), np.float32)}
    path = model(name).path
    return pt.load(path), read_inputs(path)


def measured(name: str, seconds: float, callers: bool) -> Found:
    """In this process: both engines alone, beside a rival, and with several callers."""
    import partita as pt

    graph, inputs = prepared(name)
    models = {engine: pt.compile(graph, device) for engine, device in DEVICES.items()}
    calls = {engine: functools.partial(by_situation, dict(inputs)) for engine, by_situation in models.items()}
    for call in calls.values():
        call()
    turns = {engine: clocked(call) for engine, call in calls.items()}
    by_situation = {"alone": interleaved(turns, seconds)}
    with rival():
        by_situation["beside a rival"] = interleaved(turns, seconds)
    for count in CALLERS if callers else ():
        seconds_of = {engine: [seconds_each(call, count, seconds / 2)] for engine, call in calls.items()}
        by_situation[f"{count} caller{'s' * (count > 1)}"] = seconds_of
    return by_situation


def seconds_each(call: Callable[[], Any], callers: int, seconds: float) -> float:
    """Seconds for each call that is answered, of so many callers that do nothing else."""
    began = time.perf_counter()

    def caller(_: int) -> int:
        count = 0
        while not count or time.perf_counter() < began + seconds:
            call()
            count += 1
        return count

    with ThreadPoolExecutor(callers) as pool:
        answered = sum(pool.map(caller, range(callers)))
    return (time.perf_counter() - began) / answered


def rows(name: str, measured_in: Sequence[Found]) -> Iterator[results.Row]:
    """A row for each engine and situation, over all processes that measured it."""
    for situation in measured_in[0]:
        case = {"model": name, "threads": usable_cores(), "situation": situation}
        both = {engine: [one[situation][engine] for one in measured_in if situation in one] for engine in DEVICES}
        for engine, processes in both.items():
            times = summary(processes)
            against = None if engine == "partita" else ratio(both["partita"], processes)
            alone = statistics.median(statistics.median(one["alone"][engine]) for one in measured_in)
            extra = {"over_alone": times.median / alone}
            yield results.Row(case, engine, times, against, extra=extra)


def measure(names: Sequence[str], processes: int, seconds: float) -> list[results.Row]:
    """All models, each in so many fresh processes."""
    progress = Progress(len(names) * processes, "threads")
    all_rows: list[results.Row] = []
    for name in names:
        answers: list[Found] = []
        for number in range(processes):
            progress.step(f"{name}, process {number + 1} of {processes}")
            words = ["--one", name, "--seconds", str(seconds)] + ["--callers"] * (number < WITH_CALLERS)
            answers.append(run_json(module_command("benchmarks.threads", words), LIMIT))
        new = list(rows(name, answers))
        for row in new:
            say(f"{row.case['situation']}: {tables.in_short(row)}")
        all_rows += new
    return all_rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*NAMES, "tiny"]
    parser.add_argument("--models", nargs="+", default=["resnet50", "bert"], choices=names, metavar="NAME")
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--callers", action="store_true", help=argparse.SUPPRESS)
    publish.add_options(parser)
    args = parser.parse_args()
    if args.tiny:
        args.models, args.processes, args.seconds = ["tiny"], 2, 0.1
    if args.one:
        print(json.dumps(measured(args.one, args.seconds, args.callers)))
        return
    load = OtherLoad()
    try:
        all_rows = measure(args.models, args.processes, args.seconds)
    except (CutOff, Failed) as failed:
        sys.exit(f"error: {failed}")
    about = {"processes": args.processes, "seconds": args.seconds, "others_cores": load.cores()}
    publish.finish("threads", results.section(all_rows, **about), args, parser)


if __name__ == "__main__":
    run(main)
