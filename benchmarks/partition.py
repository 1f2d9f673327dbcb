"""Partitioning, side by side: python -m benchmarks.partition [--nodes N ...] [--engines NAME ...] [--tiny]

Seconds and groups of a whole partitioning pass over three shapes: residual (a chain of residual blocks, all of it taken), holes
(every seventh op not taken) and random (layers of 32, fan-in 2, half of them taken). Every run has a fresh process; the
engines take turns. Who is over the limit at one size is not asked at the next. Results go to benchmarks/results."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks import publish, results
from benchmarks.machine import OtherLoad
from benchmarks.partitioners import LIMIT as LIMIT_VARIABLE
from benchmarks.processes import CutOff, Failed, module_command, run_json
from benchmarks.progress import Progress, run, say
from benchmarks.shapes import SHAPES
from benchmarks.timing import Ratio, Times, summary
from benchmarks.venvs import MXNET, TORCH, Environment, PeerMissing, python_of

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LIMIT = 60.0
"""Seconds after which an engine is cut off."""

SETTING_UP = 60.0
"""Seconds that a run may take besides: imports, making the engine's own graph, the warm-up."""


ROUNDS, QUICK = 3, 4.0
"""So many rounds for a process that is done within so many seconds, set-up and all; one for any other."""


@attrs.frozen
class Engine:
    """Who partitions."""

    module: str
    """Of `benchmarks.partitioners`."""
    arguments: tuple[str, ...] = ()
    """Further words for its command line."""
    environment: Environment | None = None
    """Whose Python runs it; None for the one that runs this."""


OURS = "partita largest"
"""Whom the ratios are about."""

ENGINES = {
    OURS: Engine("partita", ("largest",)),
    "partita walk": Engine("partita", ("walk",)),
    "partita waves": Engine("partita", ("waves",)),
    "mxnet": Engine("mxnet", environment=MXNET),
    "openvino": Engine("openvino"),
    "torch.fx": Engine("torch_fx", environment=TORCH),
    "tvm": Engine("tvm"),
}


def interpreters(names: Sequence[str]) -> Iterator[tuple[str, str | None, str]]:
    """For each engine its Python, or None and why there is none."""
    for name in names:
        environment = ENGINES[name].environment
        try:
            yield name, str(python_of(environment)) if environment else sys.executable, ""
        except PeerMissing as missing:
            say(f"{name} is left out: {missing}")
            yield name, None, f"not installed: {missing}"


def measure(
    shapes: Sequence[str], sizes: Sequence[int], names: Sequence[str], limit: float, rounds: int = ROUNDS
) -> list[results.Row]:
    """A row for each engine on each shape at each size."""
    pythons = {name: (python, reason) for name, python, reason in interpreters(names)}
    progress = Progress(len(shapes) * len(sizes), "partition")
    rows: list[results.Row] = []
    given_up: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory(prefix="partita-bench-") as folder:
        path = Path(folder) / "shape.json"
        for shape in shapes:
            for nodes in sizes:
                progress.step(f"{shape}, {nodes:,} nodes")
                path.write_text(json.dumps(SHAPES[shape](nodes)))
                case = {"shape": shape, "nodes": nodes}
                out = {name: reason or given_up.get((name, shape), "") for name, (_, reason) in pythons.items()}
                able = {name: python for name, (python, _) in pythons.items() if python and not out[name]}
                made = take_turns(case, able, path, limit, rounds)
                given_up |= {(name, shape): why for name, row in made.items() if (why := hopeless(row, rows, sizes, limit))}
                rows += [made.get(name) or results.Row(case, name, note=out[name]) for name in names]
    return with_ratios(rows)


def hopeless(row: results.Row, before: Sequence[results.Row], sizes: Sequence[int], limit: float) -> str:
    """Why the engine need not be asked at the next size; "" if it is to be asked.

    It was over the limit now, or would be next by far, were it to grow once more as it did from the last size to this one."""
    shape, nodes = row.case["shape"], row.case["nodes"]
    if row.times is None:
        return f"{row.note} at {nodes:,} nodes already"
    smaller = next((old for old in reversed(before) if old.engine == row.engine and old.case["shape"] == shape), None)
    later = [size for size in sizes if size > nodes]
    if smaller is None or smaller.times is None or not later or row.times.median < 1:
        return ""
    power = math.log(row.times.median / smaller.times.median) / math.log(nodes / smaller.case["nodes"])
    expected = row.times.median * (later[0] / nodes) ** power
    if expected < 3 * limit:
        return ""
    grown = row.times.median / smaller.times.median
    return f"not tried: {nodes:,} nodes took {grown:.0f} times as long as {smaller.case['nodes']:,}; {expected:,.0f} s expected"


def take_turns(
    case: dict[str, Any], pythons: Mapping[str, str], path: Path, limit: float, rounds: int
) -> dict[str, results.Row]:
    """Each engine once, in a fresh process; those that were quick again, a few rounds."""
    found: dict[str, list[results.Row]] = {name: [] for name in pythons}
    quick = list(pythons)
    for _ in range(rounds):
        for name in list(quick):
            began = time.monotonic()
            found[name].append(asked(case, name, pythons[name], path, limit))
            if found[name][-1].times is None or time.monotonic() - began > QUICK:
                quick.remove(name)
    return {name: joined(rows) for name, rows in found.items()}


def joined(rows: Sequence[results.Row]) -> results.Row:
    """One row of several processes': the first that failed, else the summary of their medians."""
    for row in rows:
        if row.times is None:
            return row
    return attrs.evolve(rows[0], times=summary([row.times.median for row in rows if row.times]))


def asked(case: dict[str, Any], name: str, python: str, path: Path, limit: float) -> results.Row:
    """One engine on one shape, in one process."""
    engine = ENGINES[name]
    command = module_command(f"benchmarks.partitioners.{engine.module}", [str(path), *engine.arguments], python)
    try:
        found = run_json(command, limit + SETTING_UP, {**os.environ, LIMIT_VARIABLE: str(limit)})
    except Failed as failed:
        note = f"over {limit:.0f} s" if failed.code == -signal.SIGALRM else str(failed)
        return results.Row(case, name, note=note)
    except CutOff as cut:
        return results.Row(case, name, note=str(cut))
    return results.Row(case, name, summary(found["seconds"]), note=found["note"], extra={"groups": found["groups"]})


def with_ratios(rows: Sequence[results.Row]) -> list[results.Row]:
    """Each sound row with our time over it; the spread is that of both, since they ran one after the other."""
    ours = {json.dumps(row.case): row.times for row in rows if row.engine == OURS}

    def compared(row: results.Row) -> results.Row:
        mine = ours.get(json.dumps(row.case))
        if mine is None or row.times is None or not row.is_sound or row.engine == OURS:
            return row
        return attrs.evolve(row, ratio=apart(mine, row.times))

    return list(map(compared, rows))


def apart(ours: Times, theirs: Times) -> Ratio:
    """The ratio of times that were not taken in the same rounds."""
    return Ratio(ours.median / theirs.median, ours.spread + theirs.spread)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["residual", "holes", "random"], choices=list(SHAPES), metavar="SHAPE")
    parser.add_argument("--nodes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), metavar="NAME")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which an engine is cut off")
    publish.add_options(parser)
    args = parser.parse_args()
    if args.tiny:
        args.shapes, args.nodes = ["random"], [200]
        args.engines = [name for name in args.engines if ENGINES[name].environment is None]
    load = OtherLoad()
    rows = measure(args.shapes, args.nodes, args.engines, args.limit, 1 if args.tiny else ROUNDS)
    publish.finish("partition", results.section(rows, limit_s=args.limit, others_cores=load.cores()), args, parser)


if __name__ == "__main__":
    run(main)
