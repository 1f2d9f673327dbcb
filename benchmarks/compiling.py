"""Compile times, side by side: python -m benchmarks.compiling [--models NAME ...] [--where] [--tiny]

Seconds from the ONNX file to the first output, the package already imported: Partita's `cpu` cold, from its cache, and by import
of an export; OpenVINO cold and from its cache; onnxruntime, which has none. Every run has a fresh process, and the engines take
turns, in rounds that begin with empty caches. With --where it is Partita's cold compilation alone, stage by stage
(`benchmarks.stages`)."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import publish, results
from benchmarks.machine import OtherLoad
from benchmarks.models import NAMES, Model, model
from benchmarks.processes import CutOff, Failed, module_command, run_json
from benchmarks.progress import Progress, run
from benchmarks.timing import ratio, summary

MODELS = ("squeezenet", "mobilenet_v2", "resnet50", "densenet121", "bert")
"""Measured unless others are named: small and large, few layers and many."""

EXPORT = "model.partita"

Inputs = Mapping[str, np.ndarray]


def partita_cached(path: str, folder: Path, inputs: Inputs) -> Any:
    """Compile with a cache in this folder."""
    import partita as pt

    compiled = pt.compile(pt.load(path), "cpu", {"CACHE_DIR": str(folder / "partita")})
    compiled(dict(inputs))
    return compiled


def partita_import(path: str, folder: Path, inputs: Inputs) -> Any:
    """Import the file that the first run exported."""
    import partita as pt

    compiled = pt.import_model(folder / EXPORT)
    compiled(dict(inputs))
    return compiled


def openvino_cached(path: str, folder: Path, inputs: Inputs) -> Any:
    """Compile with a cache in this folder."""
    import openvino

    properties = {"CACHE_DIR": str(folder / "openvino"), "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    return openvino.Core().compile_model(path, "CPU", properties)(dict(inputs))


def onnxruntime_session(path: str, folder: Path, inputs: Inputs) -> Any:
    """Create a session."""
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, dict(inputs))


STEPS: dict[str, Callable[[str, Path, Inputs], Any]] = {
    "partita cold": partita_cached,
    "partita warm": partita_cached,
    "partita import": partita_import,
    "openvino cold": openvino_cached,
    "openvino warm": openvino_cached,
    "onnxruntime": onnxruntime_session,
}
"""In the order in which they must run: what comes first fills the caches."""

AGAINST = {"openvino cold": "partita cold", "openvino warm": "partita warm", "onnxruntime": "partita import"}
"""For each step, the step whose time it is compared with."""


def once(step: str, case_model: Model, folder: Path) -> dict[str, float]:
    """One run in this process; the first one of Partita leaves an export."""
    __import__(step.split()[0])  # the package itself is not what is measured
    inputs = case_model.inputs()
    start = time.perf_counter()
    ready = STEPS[step](str(case_model.path), folder, inputs)
    result = {"seconds": time.perf_counter() - start}
    if step == "partita cold":
        ready.export(folder / EXPORT)
    if step == "partita import":
        result["MiB"] = (folder / EXPORT).stat().st_size / 2**20
    return result


def measure(name: str, batch: int, rounds: int, seconds: float) -> list[results.Row]:
    """A row for each step on one model; no further round begins after so many seconds."""
    times: dict[str, list[float]] = {step: [] for step in STEPS}
    extra: dict[str, dict[str, float]] = {step: {} for step in STEPS}
    failures: dict[str, str] = {}
    model(name, batch)
    began = time.monotonic()
    for turn in range(rounds):
        if turn >= FEWEST and time.monotonic() - began > seconds:
            break
        with tempfile.TemporaryDirectory(prefix="partita-bench-") as folder:
            for step in STEPS:
                if step in failures:
                    continue
                words = ["--once", step, name, str(batch), folder]
                try:
                    said = run_json(module_command("benchmarks.compiling", words), LIMIT)
                except (CutOff, Failed) as failed:
                    failures[step] = str(failed)
                    continue
                times[step].append(said.pop("seconds"))
                extra[step] = said
    case = {"model": name, "batch": batch}

    def row(step: str) -> results.Row:
        if step in failures:
            return results.Row(case, step, note=failures[step])
        ours = AGAINST.get(step)
        turns = list(zip(times[ours], times[step])) if ours and ours not in failures else []
        against = ratio([[a] for a, _ in turns], [[b] for _, b in turns]) if turns else None
        return results.Row(case, step, summary([[taken] for taken in times[step]]), against, extra=extra[step])

    return list(map(row, STEPS))


def where(name: str, batch: int) -> str:
    """A table of the stages of one cold compilation, in a fresh process."""
    model(name, batch)
    said = run_json(module_command("benchmarks.stages", [name, str(batch)]), LIMIT)
    lines = [f"| {stage} | {seconds:.2f} |" for stage, seconds in said["stages"].items()]
    kernels = f"{said['kernels']} kernels, {said['twice']} of them generated twice"
    return "\n".join([f"\n**{name}**, {said['wall']:.2f} s, {kernels}\n", "| stage | processor's s |", "|---|---|", *lines])


FEWEST = 2
"""Rounds that there are in any case."""

LIMIT = 300.0
"""Seconds that a run may take."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=NAMES, metavar="NAME")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="at most so many")
    parser.add_argument("--seconds", type=float, default=20.0, help="after so many no third round of a model begins")
    parser.add_argument("--where", action="store_true", help="where the time of a cold compilation goes")
    parser.add_argument("--once", nargs=4, help=argparse.SUPPRESS)
    publish.add_options(parser)
    args = parser.parse_args(arguments)
    if args.once:
        step, name, batch, folder = args.once
        print(json.dumps(once(step, model(name, int(batch)), Path(folder))))
        return
    if args.tiny:
        args.models, args.rounds = ["squeezenet"], 1
    if args.where:
        for name in args.models:
            print(where(name, args.batch), flush=True)
        return
    load = OtherLoad()
    progress = Progress(len(args.models), "compile")
    rows: list[results.Row] = []
    for name in args.models:
        progress.step(name)
        rows += measure(name, args.batch, args.rounds, args.seconds)
    publish.finish("compile", results.section(rows, others_cores=load.cores()), args, parser)


if __name__ == "__main__":
    run(main)
