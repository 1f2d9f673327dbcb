"""The latency of models, side by side: python -m benchmarks.latency [--models NAME ...] [--batch N ...] [--tiny]

Each model, batch and number of threads has a fresh process. In it Partita, onnxruntime and OpenVINO take turns, and so do
torch and torch.compile in processes of their own where the model comes from torch; TVM's default pipeline, which is far
slower, is timed once at the end and cut off at a limit. Outputs are compared with onnxruntime's in the same run."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from benchmarks import publish, results
from benchmarks.agreement import TOLERANCE, error
from benchmarks.contestants import ENGINES, Contest, Engine
from benchmarks.machine import OtherLoad, usable_cores
from benchmarks.models import NAMES, Model, model
from benchmarks.processes import CutOff, Failed, module_command, run_json
from benchmarks.progress import Progress, run, say
from benchmarks.timing import Ratio, interleaved, ratio, summary

OURS, ORACLE = "partita", "onnxruntime"


def compete(
    engines: Mapping[str, Engine],
    made: Model,
    threads: int,
    inputs: Mapping[str, np.ndarray],
    reference: Sequence[np.ndarray],
    seconds: float,
    limit: float,
) -> list[results.Row]:
    """A row for each engine on this model, in this process. Without a reference, onnxruntime's outputs are it."""
    load = OtherLoad()
    with Contest(engines, made, threads, inputs, limit) as contest:
        errors, taken = {}, {}
        for name in sorted(contest.engines, key=lambda name: (contest.engines[name].is_slow, name != ORACLE)):
            outputs, taken[name] = first_outputs(contest, name)
            if outputs:
                reference = reference or outputs
                errors[name] = error(outputs, reference)
        turns = {name: contest.loaded[name].seconds for name in engines if name in contest.loaded and not engines[name].is_slow}
        found = interleaved(turns, seconds)
        for name in contest.loaded.keys() - turns.keys():
            found[name] = [taken[name]] if taken[name] > limit / 4 else contest.loaded[name].seconds(2)
    case = {"model": made.name, "batch": made.batch, "threads": threads}
    extra = {"others_cores": load.cores()}

    def row(name: str) -> results.Row:
        if name not in found:
            return results.Row(case, name, note=contest.missing[name])
        note = "" if errors[name] <= TOLERANCE else f"wrong: {errors[name]:.0e}"
        return results.Row(case, name, summary(found[name]), _over(found, name), errors[name], note, extra)

    return [row(name) for name in engines if name in contest.engines]


def first_outputs(contest: Contest, name: str) -> tuple[Sequence[np.ndarray], float]:
    """Load an engine and call it; nothing where either fails, and the contest then knows why. And how long the call took."""
    loaded = contest.load(name)
    began = time.perf_counter()
    if loaded is None:
        return [], 0.0
    try:
        return loaded.outputs(), time.perf_counter() - began
    except Exception as failed:  # noqa: BLE001  any engine may fail in any way, and the others go on
        contest.drop(name, failed)
        return [], 0.0


def _over(found: Mapping[str, list[float]], name: str) -> Ratio | None:
    """Our time over another's; one that took no turns is compared with all of ours."""
    if name == OURS or OURS not in found:
        return None
    ours, theirs = found[OURS], found[name]
    return ratio(ours, theirs if len(theirs) == len(ours) else [statistics.median(theirs)] * len(ours))


def skipped(name: str, case: Mapping[str, Any], rows: Sequence[results.Row], limit: float) -> results.Row | None:
    """A slow engine need not be asked at a batch where it cannot be within the limit."""
    if not ENGINES[name].is_slow:
        return None
    one = {**case, "batch": 1}
    known = next((row for row in rows if row.case == one and row.engine == name), None)
    if known is None or case["batch"] == 1:
        return None
    if known.times is None or known.times.median * case["batch"] > limit:
        said = known.note or f"{known.times.median:.1f} s" if known.times else known.note
        return results.Row(dict(case), name, note=f"not tried: {said} at batch 1")
    return None


def measure(cases: Sequence[dict[str, Any]], names: Sequence[str], seconds: float, limit: float) -> list[results.Row]:
    """All cases, each in a process of its own."""
    progress = Progress(len(cases), "latency")
    rows: list[results.Row] = []
    for case in cases:
        progress.step(", ".join(f"{key} {value}" for key, value in case.items()))
        able = [name for name in names if ENGINES[name].runs(case["model"], case["threads"])]
        left_out = {name: row for name in able if (row := skipped(name, case, rows, limit))}
        try:
            model(case["model"], case["batch"])
            words = ["--case", json.dumps(case), "--engines", *(name for name in able if name not in left_out)]
            words += ["--seconds", str(seconds), "--limit", str(limit)]
            said = run_json(module_command("benchmarks.latency", words), CASE_LIMIT)
        except (CutOff, Failed) as failed:
            say(f"failed: {failed}")
            rows += [results.Row(case, name, note=f"failed: {failed}") for name in able]
            continue
        rows += [results.row(value) for value in said]
        rows += left_out.values()
    return rows


CASE_LIMIT = 900.0
"""Seconds after which a whole case is given up."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, usable_cores()}))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=3.0, help="to spend on the turns of one case")
    parser.add_argument("--limit", type=float, default=6.0, help="seconds after which a slow engine's call is cut off")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    publish.add_options(parser)
    args = parser.parse_args()
    if args.case:
        made = model(args.case["model"], args.case["batch"])
        engines = {name: ENGINES[name] for name in args.engines}
        found = compete(engines, made, args.case["threads"], made.inputs(), [], args.seconds, args.limit)
        print(json.dumps(list(map(attrs.asdict, found))))
        return
    if args.tiny:
        args.models, args.batch, args.threads, args.seconds = ["squeezenet"], [1], [1], 0.1
        args.engines = [name for name in args.engines if ENGINES[name].environment is None]
    cases = [
        {"model": name, "batch": batch, "threads": threads}
        for batch in args.batch for threads in args.threads for name in args.models
    ]  # fmt: skip
    load = OtherLoad()
    rows = measure(cases, args.engines, args.seconds, args.limit)
    about = {"seconds": args.seconds, "limit_s": args.limit, "others_cores": load.cores()}
    publish.finish("latency", results.section(rows, **about), args, parser)


if __name__ == "__main__":
    run(main)
