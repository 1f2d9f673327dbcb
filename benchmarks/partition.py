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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks import publish, results, tables
from benchmarks.machine import OtherLoad, usable_cores
from benchmarks.partitioners import LIMIT as LIMIT_VARIABLE
from benchmarks.processes import CutOff, Failed, module_command, run_together
from benchmarks.progress import Progress, run, say
from benchmarks.shapes import SHAPES
from benchmarks.timing import ratio, summary
from benchmarks.venvs import MXNET, TORCH, Environment, PeerMissing, python_of

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LIMIT = 60.0
"""Seconds after which an engine is cut off."""

SETTING_UP = 60.0
"""Seconds that a run may take besides: imports, making the engine's own graph, the warm-up."""

ROUNDS = 3
"""At most."""

QUICK = 4.0
"""After so many seconds in all its processes, set-up and all, no engine has a further round on a shape."""

LONG = 15.0
"""Peers that are expected to take so many seconds run at the same time as each other, on cores of their own."""

HOPELESS = 1.5
"""An engine that is expected to take this many times the limit is not asked."""


@attrs.frozen
class Engine:
    """An engine that partitions graphs."""

    module: str
    """The engine's module in `benchmarks.partitioners`."""
    arguments: tuple[str, ...] = ()
    """Further words for its command line."""
    environment: Environment | None = None
    """The environment whose Python runs it; None for the Python that runs this program."""


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
    """For each engine its Python, or None together with the reason why there is none."""
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
        for nodes in sizes:
            tasks: list[Task] = []
            new_rows: list[results.Row] = []
            for shape in shapes:
                path, case = Path(folder) / f"{shape}.json", {"shape": shape, "nodes": nodes}
                path.write_text(json.dumps(SHAPES[shape](nodes)))
                out = {name: reason or given_up.get((name, shape), "") for name, (_, reason) in pythons.items()}
                new_rows += [results.Row(case, name, note=note) for name, note in out.items() if note]
                able = [Task(case, name, str(python), path) for name, (python, _) in pythons.items() if not out[name]]
                long = [task for task in able if is_long(task, rows)]
                tasks += long
                progress.step(tables.case_text(case))
                new_rows += take_turns([task for task in able if task not in long], limit, rounds)
            new_rows += side_by_side(tasks, limit)
            new = {(row.engine, row.case["shape"]): hopeless(row, rows, sizes, limit) for row in new_rows}
            given_up = {key: why for key, why in (new | given_up).items() if why}
            rows += new_rows
    order = [(shape, nodes, name) for shape in shapes for nodes in sizes for name in names]
    return with_ratios(sorted(rows, key=lambda row: order.index((row.case["shape"], row.case["nodes"], row.engine))))


@attrs.frozen
class Task:
    """One engine on one shape."""

    case: dict[str, Any]
    """Shape and nodes."""
    engine: str
    """The engine's name."""
    python: str
    """Who runs it."""
    path: Path
    """The shape's file."""

    def command(self) -> list[str]:
        """The command that does the task in a fresh process."""
        engine = ENGINES[self.engine]
        return module_command(f"benchmarks.partitioners.{engine.module}", [str(self.path), *engine.arguments], self.python)


def is_long(task: Task, before: Sequence[results.Row]) -> bool:
    """Is a peer expected to take so long that what runs beside it makes no difference that counts?"""
    earlier = [row for row in before if row.engine == task.engine and row.case["shape"] == task.case["shape"] and row.times]
    if not earlier or task.engine.startswith("partita"):
        return False
    return expected(task.case["nodes"], *earlier[-2:]) > LONG


def expected(nodes: int, *known: results.Row) -> float:
    """Seconds at another size, if time grows as it did so far; as the square where one size alone is known."""
    first, last = known[0], known[-1]
    size, taken = last.case["nodes"], last.times.median if last.times else 0.0
    power = 2.0
    if first is not last and first.times:
        power = math.log(taken / first.times.median) / math.log(size / first.case["nodes"])
    return taken * (nodes / size) ** power


def hopeless(row: results.Row, before: Sequence[results.Row], sizes: Sequence[int], limit: float) -> str:
    """Why the engine is not measured at the next size; "" if it is.

    It was over the limit at this size, or would be far over it at the next one if its time grew again as it did from
    the last size to this one.
    """
    shape, nodes = row.case["shape"], row.case["nodes"]
    if row.times is None:
        return f"{row.note} at {nodes:,} nodes already"
    smaller = next((old for old in reversed(before) if old.engine == row.engine and old.case["shape"] == shape), None)
    later = [size for size in sizes if size > nodes]
    if smaller is None or smaller.times is None or not later or row.times.median < 1:
        return ""
    soon = expected(later[0], smaller, row)
    if soon < HOPELESS * limit:
        return ""
    grown = row.times.median / smaller.times.median
    return f"not tried: {nodes:,} nodes took {grown:.0f} times as long as {smaller.case['nodes']:,}; {soon:,.0f} s expected"


def take_turns(tasks: Sequence[Task], limit: float, rounds: int) -> list[results.Row]:
    """Each engine once, in a fresh process; those that were quick again, a few rounds."""
    rows_of: dict[str, list[results.Row]] = {task.engine: [] for task in tasks}
    spent = dict.fromkeys(rows_of, 0.0)
    for _ in range(rounds):
        for task in tasks:
            if spent[task.engine] < QUICK:
                began = time.monotonic()
                new_rows = side_by_side([task], limit)
                rows_of[task.engine] += new_rows
                spent[task.engine] += time.monotonic() - began if new_rows[0].times else math.inf
    return list(map(joined, rows_of.values()))


def joined(rows: Sequence[results.Row]) -> results.Row:
    """One row of several processes': the first that failed, else the summary of their medians."""
    for row in rows:
        if row.times is None:
            return row
    return attrs.evolve(rows[0], times=summary([[row.times.median] for row in rows if row.times]))


def side_by_side(tasks: Sequence[Task], limit: float) -> list[results.Row]:
    """Each task once, in a fresh process; as many at a time as leave a core free. (No engine partitions with several threads.)"""
    at_once = max(1, usable_cores() - 1)
    new_rows: list[results.Row] = []
    for i in range(0, len(tasks), at_once):
        some = tasks[i : i + at_once]
        said = run_together([task.command() for task in some], limit + SETTING_UP, {**os.environ, LIMIT_VARIABLE: str(limit)})
        new_rows += [row(task, answer, limit) for task, answer in zip(some, said)]
    return new_rows


def row(task: Task, answer: Any, limit: float) -> results.Row:
    """The row with what a process answered, or with the reason why it did not."""
    if isinstance(answer, Failed):
        note = f"over {limit:.0f} s" if answer.code == -signal.SIGALRM else str(answer)
        return results.Row(task.case, task.engine, note=note)
    if isinstance(answer, CutOff):
        return results.Row(task.case, task.engine, note=str(answer))
    times = summary([answer["seconds"]])
    return results.Row(task.case, task.engine, times, note=answer["note"], extra={"groups": answer["groups"]})


def with_ratios(rows: Sequence[results.Row]) -> list[results.Row]:
    """Each sound row with our time over it, process by process as they took turns."""
    ours = {json.dumps(row.case): row.times for row in rows if row.engine == OURS}

    def compared(row: results.Row) -> results.Row:
        mine = ours.get(json.dumps(row.case))
        if mine is None or row.times is None or not row.is_sound or row.engine == OURS:
            return row
        turns = list(zip(mine.processes, row.times.processes))
        return attrs.evolve(row, ratio=ratio([[a] for a, _ in turns], [[b] for _, b in turns]))

    return list(map(compared, rows))


def main() -> None:
    """Run the command line."""
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
