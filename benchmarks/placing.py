"""Placements by measured cost, end to end: python -m benchmarks.placing [--models NAME ...] [--seconds S] [--rounds N] [--tiny]

Each model has a process of its own on `cpu`, onnxruntime and OpenVINO. There costs are measured (`pt.measure`) and minimised
(`pt.place`), and the best few placements are measured (`pt.auto`). Then the placement by cost, the chosen one, and each device
with all that it runs take turns; `cpu` first is the placement by priority. After that, models run two at once, in rounds of one
request each: placed by `pt.place_many`, and each on its fastest device. What did not work has the reason in its row."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.machine import OtherLoad, machine_name, processor
from benchmarks.models import NAMES, model
from benchmarks.processes import CutOff, Failed, module_command, run_json
from benchmarks.progress import Progress, run, say
from benchmarks.tables import markdown
from benchmarks.timing import clocked, interleaved, ratio, summary

DEVICES = ("cpu", "onnxruntime", "openvino")
"""The devices, the preferred one first."""

LIMIT = 150.0
"""Seconds after which a process is given up, compiling included."""

BUDGET = 25.0
"""The seconds of `pt.auto`."""

AT_ONCE = 2
"""The number of requests of each model that are under way, when two models run at once."""

HEADER = (
    "model", "cpu", "onnxruntime", "openvino", "by cost", "chosen", "spread", "chosen / best device", "predicted: by cost",
    "predicted: chosen", "gap", "chosen: ops",
)
PAIRS_HEADER = ("two at once", "placed", "fastest devices", "placed / fastest", "predicted", "ops")


def main() -> None:
    """Both tables, and a sentence below each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--threads", type=int, default=1, help="of each device (1: then several devices can work at once)")
    parser.add_argument("--seconds", type=float, default=5.0, help="the turns of one model (5)")
    parser.add_argument("--rounds", type=int, default=60, help="the most rounds of one model (60)")
    parser.add_argument("--tiny", action="store_true", help="one small model, few rounds, to see that it works")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--fastest", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.tiny:
        args.models, args.seconds, args.rounds = ["squeezenet"], 0.2, 4
    if args.case:
        made = together(args.case, args.fastest, args) if args.fastest else alone(args.case[0], args)
        print(json.dumps(made))
        return
    load = OtherLoad()
    print(f"{processor()} ({machine_name()}), threads of each device: {args.threads}\n")
    with tempfile.TemporaryDirectory(prefix="partita-bench-") as cache:
        pairs = list(zip(args.models[::2], args.models[1::2]))
        progress = Progress(len(args.models) + len(pairs), "placing")
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        rows: dict[str, Any] = {}
        for name in args.models:
            progress.step(name)
            rows[name] = asked([name], [], args, environment)
        print(markdown(HEADER, [line(name, row) for name, row in rows.items()]), flush=True)
        print(f"\n{in_all(rows)}\n", flush=True)
        both = []
        for pair in pairs:
            progress.step(" and ".join(pair))
            found = [rows[name] for name in pair]
            fastest = [row["fastest"] for row in found if isinstance(row, dict)]
            both.append(asked(pair, fastest, args, environment) if len(fastest) == 2 else "one of them was not placed")
        if pairs:
            print(markdown(PAIRS_HEADER, [pair_line(pair, row) for pair, row in zip(pairs, both)]))
    print(f"\nOther programs kept {load.cores():.1f} cores busy meanwhile.")


def asked(names: Sequence[str], fastest: Sequence[str], args: argparse.Namespace, environment: Mapping[str, str]) -> Any:
    """The answer of a process of its own, or the reason why there is none."""
    for name in names:
        model(name)
    numbers = {"--threads": args.threads, "--seconds": args.seconds, "--rounds": args.rounds}
    words = ["--case", *names, *(word for option, number in numbers.items() for word in (option, str(number)))]
    words += ["--fastest", *fastest] if fastest else []
    try:
        return run_json(module_command("benchmarks.placing", words), LIMIT, dict(environment))
    except (CutOff, Failed) as error:
        say(f"{' and '.join(names)}: {error}")
        return str(error)


def config_of(threads: int) -> dict[str, dict[str, Any]]:
    """The configuration of all devices."""
    return {label: {"NUM_THREADS": threads} for label in DEVICES}


def first(label: str) -> str:
    """The devices, this one first."""
    return "HETERO:" + ",".join([label, *(other for other in DEVICES if other != label)])


def alone(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One model: the milliseconds and predictions of each placement."""
    import partita as pt

    case_model = model(name)
    graph, inputs, config = pt.load(case_model.path), case_model.inputs(), config_of(args.threads)
    began = time.perf_counter()
    costs = pt.measure(graph, first(DEVICES[0]), config=config, progress=False)
    by_cost = pt.place(graph, first(DEVICES[0]), costs=costs, config=config)
    choice = pt.auto(graph, first(DEVICES[0]), config=config, seconds=BUDGET, progress=False)
    chosen = {node: one.device for node, one in choice.plan.nodes.items()}
    where = {label: dict(pt.query(graph, first(label), config=config)) for label in DEVICES}
    where |= {"by cost": dict(by_cost), "chosen": chosen}
    models = {label: pt.compile(graph, first(label), config) for label in DEVICES}
    models["by cost"] = pt.compile(graph, first(DEVICES[0]), config, plan=by_cost)
    models["chosen"] = pt.compile(graph, first(DEVICES[0]), config, plan=choice.plan)
    prepared = time.perf_counter() - began
    calls = {title: clocked(partial(compiled, inputs)) for title, compiled in models.items()}
    times = interleaved(calls, args.seconds, most=args.rounds)
    best = min(DEVICES, key=lambda label: statistics.median(times[label]))
    compared = ratio([times["chosen"]], [times[best]])
    say(f"{name}: prepared in {prepared:.0f} s")
    return {
        "ms": {title: 1e3 * statistics.median(taken) for title, taken in times.items()},
        "spread": summary([times["chosen"]]).spread,
        "ratio": [compared.value, compared.spread],
        "predicted": {title: by_cost.setting.predicted_us(placed) / 1e3 for title, placed in where.items()},
        "gap": by_cost.certificate.gap,
        "ops": Counter(chosen.values()),
        "fastest": best,
    }


def together(names: Sequence[str], fastest: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """Two models at once: the milliseconds of a round, in which each has one request."""
    import partita as pt

    graphs, inputs = [pt.load(model(name).path) for name in names], [model(name).inputs() for name in names]
    config = config_of(args.threads)
    costs = [pt.measure(graph, first(DEVICES[0]), config=config, progress=False) for graph in graphs]
    placed = pt.place_many(graphs, first(DEVICES[0]), costs=costs, config=config)
    piped = {**config, "HETERO": {"NUM_REQUESTS": AT_ONCE, "PIPELINE": True}}
    ways = {
        "placed": [pt.compile(graph, first(DEVICES[0]), piped, plan=one) for graph, one in zip(graphs, placed)],
        "fastest": [pt.compile(graph, first(label), piped) for graph, label in zip(graphs, fastest)],
    }

    def rounds(models: Sequence[pt.CompiledModel], count: int) -> list[float]:
        began = time.perf_counter()
        started = [compiled.start(given) for _ in range(count * AT_ONCE) for compiled, given in zip(models, inputs)]
        for one in started:
            one.result()
        return [(time.perf_counter() - began) / (count * AT_ONCE)] * count

    times = interleaved({title: partial(rounds, models) for title, models in ways.items()}, args.seconds, most=args.rounds)
    compared = ratio([times["placed"]], [times["fastest"]])
    return {
        "ms": {title: 1e3 * statistics.median(taken) for title, taken in times.items()},
        "ratio": [compared.value, compared.spread],
        "predicted": placed[0].certificate.predicted_us / 1e3,
        "ops": sum((Counter(one.values()) for one in placed), Counter[str]()),
    }


def line(name: str, row: Any) -> list[str]:
    """A model's line of the table; a reason in place of a row."""
    if isinstance(row, str):
        return [name, row, *[""] * (len(HEADER) - 2)]
    off = {title: row["predicted"][title] / row["ms"][title] for title in ("by cost", "chosen")}
    return [
        name, *(f"{row['ms'][title]:.2f}" for title in (*DEVICES, *off)), f"±{row['spread']:.0%}", over(row),
        *(f"{times:.2f} times" for times in off.values()), f"{row['gap']:.1%}", ops(row),
    ]


def pair_line(pair: Sequence[str], row: Any) -> list[str]:
    """The same for two models."""
    title = " + ".join(pair)
    if isinstance(row, str):
        return [title, row, *[""] * (len(PAIRS_HEADER) - 2)]
    milliseconds = [f"{row['ms'][way]:.2f}" for way in ("placed", "fastest")]
    return [title, *milliseconds, over(row), f"{row['predicted']:.2f}", ops(row)]


def over(row: Mapping[str, Any]) -> str:
    """The ratio with its uncertainty."""
    value, spread = row["ratio"]
    return f"{value:.2f} ±{value * spread:.2f}"


def ops(row: Mapping[str, Any]) -> str:
    """The number of ops of each device."""
    return ", ".join(f"{count} {label}" for label, count in row["ops"].items())


def in_all(rows: Mapping[str, Any]) -> str:
    """The sentence below the table."""
    known = [row for row in rows.values() if isinstance(row, dict)]
    if not known:
        return "No model was placed."
    slower = [
        name for name, row in rows.items() if isinstance(row, dict) and row["ratio"][0] > 1 + max(row["ratio"][1], row["spread"])
    ]
    off = {
        title: statistics.median(abs(row["predicted"][title] / row["ms"][title] - 1) for row in known)
        for title in ("by cost", "chosen")
    }
    return (
        f"Milliseconds, medians. The chosen placement is slower than the best device by more than the spread in {len(slower)} of"
        f" {len(known)} models ({', '.join(slower) or 'none'}). In the median, predictions are off by {off['by cost']:.1%} for"
        f" the placement by cost and by {off['chosen']:.1%} for the chosen one."
    )


if __name__ == "__main__":
    run(main)
