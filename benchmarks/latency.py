"""The latency of models, side by side: python -m benchmarks.latency [--models NAME ...] [--batch N ...] [--tiny]

Each model, batch and number of threads has fresh processes. In each Partita, onnxruntime and OpenVINO take turns, and so do
torch and torch.compile in processes of their own where the model comes from torch; TVM's default pipeline, which is far
slower, is timed at the end of the first and cut off at a limit. Outputs are compared with onnxruntime's in every process."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import publish, results, tables
from benchmarks.contest import compete, run_case
from benchmarks.contestants import ENGINES
from benchmarks.machine import OtherLoad, usable_cores
from benchmarks.models import NAMES, model
from benchmarks.processes import module_command
from benchmarks.progress import Progress, run, say


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


def plan(case: Mapping[str, Any]) -> tuple[int, float]:
    """How many processes a case has, and how many seconds one engine's turns take in all of them.

    Threads are what differs from process to process and from call to call; a larger batch evens that out."""
    if case["threads"] == 1:
        return (2, 1.4) if case["batch"] == 1 else (1, 1.2)
    return (3, 2.5) if case["batch"] == 1 else (2, 1.6)


def measure(cases: Sequence[dict[str, Any]], args: argparse.Namespace) -> list[results.Row]:
    """All cases, one after the other."""
    progress = Progress(len(cases), "latency")
    rows: list[results.Row] = []
    for case in cases:
        progress.step(tables.case_text(case))
        able = [name for name in args.engines if ENGINES[name].runs(case["model"], case["threads"])]
        left_out = {name: row for name in able if (row := skipped(name, case, rows, args.limit))}
        asked = {name: ENGINES[name] for name in able if name not in left_out}
        model(case["model"], case["batch"])
        processes, seconds = args.processes or plan(case)[0], args.seconds or plan(case)[1]
        words = ["--case", json.dumps(case), "--seconds", str(seconds * len(asked) / processes), "--limit", str(args.limit)]

        def command(names: Sequence[str], gate: int, words: Sequence[str] = words) -> list[str]:
            return module_command("benchmarks.latency", [*words, "--gate", str(gate), "--engines", *names])

        by_engine = {row.engine: row for row in run_case(case, asked, command, processes)} | left_out
        rows += [by_engine[name] for name in able]
        say("; ".join(tables.in_short(by_engine[name]) for name in able))
    return rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, usable_cores()}))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), metavar="NAME")
    parser.add_argument("--seconds", type=float, help="for one engine's turns in a case, in all its processes (1.4 to 2.5)")
    parser.add_argument("--processes", type=int, help="fresh ones for each case (2; for batch 1 on several threads 3)")
    parser.add_argument("--limit", type=float, default=4.0, help="seconds after which a slow engine's call is cut off")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--gate", type=int, help=argparse.SUPPRESS)
    publish.add_options(parser)
    args = parser.parse_args()
    if args.case:
        case_model = model(args.case["model"], args.case["batch"])
        engines = {name: ENGINES[name] for name in args.engines}
        inputs = case_model.inputs()
        print(json.dumps(compete(engines, case_model, args.case["threads"], inputs, [], args.seconds, args.limit, args.gate)))
        return
    if args.tiny:
        args.models, args.batch, args.threads, args.seconds, args.processes = ["squeezenet"], [1], [1], 0.1, 2
        args.engines = [name for name in args.engines if ENGINES[name].environment is None]
    cases = [
        {"model": name, "batch": batch, "threads": threads}
        for batch in args.batch for threads in args.threads for name in args.models
    ]
    load = OtherLoad()
    rows = measure(cases, args)
    about = {"limit_s": args.limit, "others_cores": load.cores()}
    publish.finish("latency", results.section(rows, **about), args, parser)


if __name__ == "__main__":
    run(main)
