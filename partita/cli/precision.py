"""The precision of each op, chosen by measuring: as many in a lower one as a tolerance allows.

The inputs are those given, or made up: several calls with random numbers (--calls). Ones that are typical for the model choose
better. -o writes the model in the chosen precisions, as standard ONNX; --plan writes the plan, which --lock-plan takes again."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import partita as pt
from accelerators.precision.calibration import METHODS
from accelerators.precision.lowered_ops import PRECISIONS
from accelerators.process.atomic import replacing
from graph.errors import ReadError
from partita.cli import exits
from partita.cli.arguments import (
    add_count,
    add_devices,
    add_inputs,
    add_model,
    add_repeated,
    config_of,
    names,
    pair,
    positive,
)
from partita.cli.models import compiled, load_graph, model_inputs, writable
from partita.cli.screen import Screen

EXAMPLE = """\
  partita precision zoo:squeezenet --devices cpu --tolerance 0.05 -o lowered.onnx
  partita precision model.onnx --input calls.npz --win memory --plan plan.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_devices(parser)
    inputs = parser.add_argument_group("inputs")
    add_inputs(inputs)
    add_count(inputs, "--calls", 1, "so many are made up", 4)
    group = parser.add_argument_group("choosing")
    group.add_argument("--tolerance", type=positive, default=1e-2, metavar="E", help="the largest error (default: %(default)s)")
    group.add_argument(
        "--precisions", type=names, default=["int8"], metavar="P,...", help=f"of {', '.join(PRECISIONS)} (default: int8)"
    )
    group.add_argument("--win", choices=("time", "memory"), default="time", help="what is to be won (default: %(default)s)")
    group.add_argument("--calibration", choices=METHODS, default=METHODS[0], help="what bytes cover (default: %(default)s)")
    add_repeated(group, "--lock", pair, "NAMES=P", "ops whose whole name matches run in P")
    group.add_argument("--lock-plan", metavar="FILE", help="what is locked in this plan stays as it is")
    group.add_argument("--plan", metavar="PLAN.json", help="write the plan")
    group.add_argument("-o", "--output", metavar="OUT.onnx", help="write the model in the chosen precisions")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Choose, show the plan, and write what was asked for."""
    for path in (arguments.plan, arguments.output):
        writable(path, arguments.model)
    lock = {**_locked(arguments.lock_plan), **dict(arguments.lock)}
    graph, config = load_graph(arguments, screen), config_of(arguments.config, arguments.devices)
    model = compiled(graph, arguments, screen, config)
    calls = [model_inputs(model, arguments, screen)]
    if not arguments.input:
        seeds = range(arguments.seed + 1, arguments.seed + arguments.calls)
        calls += [dict(zip(calls[0], model.example_inputs(seed), strict=True)) for seed in seeds]
    screen.say("measuring what each op costs and wins")
    plan = pt.choose_precision(
        graph, calls, arguments.tolerance, arguments.devices or "HETERO:cpu,reference", config,
        precisions=arguments.precisions, win=arguments.win, calibration=arguments.calibration, lock=lock,
    )
    if arguments.plan:
        with replacing(arguments.plan) as file:
            file.write(plan.to_json().encode())
    if arguments.output:
        pt.save(plan.apply(graph), arguments.output)
    for path in filter(None, (arguments.plan, arguments.output)):
        screen.say(f"wrote {path}")
    screen.write_json(json.loads(plan.to_json()))
    screen.show(plan.to_table())
    return exits.OK


def _locked(path: str | None) -> dict[str, str]:
    """What a plan in a file has locked."""
    if path is None:
        return {}
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(f"no plan can be read from it: {error}", where=path, remedy="Give what --plan wrote") from error
    return pt.PrecisionPlan.from_json(text).locked
