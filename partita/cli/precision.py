"""Choose the precision of each op by measuring: as many ops in a lower one as a tolerance allows.

Without --input, several calls (--calls) with random inputs are measured; typical inputs give a better choice. -o writes the model
in the chosen precisions, as standard ONNX; --plan writes the plan, for --apply and --lock-plan."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import partita as pt
from partita.accelerators.precision.calibration import METHODS
from partita.accelerators.precision.lowered_ops import PRECISIONS
from partita.accelerators.process.atomic import replacing
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
    placing_of,
    positive,
)
from partita.cli.models import compiled, load_graph, model_inputs, writable
from partita.cli.screen import Screen
from partita.graph.errors import ReadError

EXAMPLE = """\
  partita precision zoo:squeezenet --devices cpu --tolerance 0.05 -o lowered.onnx
  partita precision model.onnx --input calls.npz --win memory --plan plan.json
  partita precision model.onnx --devices HETERO:openvino,cpu --plan plan.json --why conv1
  partita precision model.onnx --apply plan.json -o lowered.onnx
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_devices(parser)
    inputs = parser.add_argument_group("inputs")
    add_inputs(inputs)
    add_count(inputs, "--calls", 1, "the number of calls with generated inputs", 4)
    group = parser.add_argument_group("choosing")
    group.add_argument("--tolerance", type=positive, default=1e-2, metavar="E", help="the largest error (default: %(default)s)")
    group.add_argument(
        "--precisions", type=names, default=["int8"], metavar="P,...", help=f"to try: {', '.join(PRECISIONS)} (default: int8)"
    )
    group.add_argument("--win", choices=("time", "memory"), default="time", help="what to save (default: %(default)s)")
    text = "the method that chooses ranges (default: %(default)s)"
    group.add_argument("--calibration", choices=METHODS, default=METHODS[0], help=text)
    add_repeated(group, "--lock", pair, "NAMES=P", "run in P the ops whose whole name matches this regular expression")
    group.add_argument("--lock-plan", metavar="FILE", help="keep the precisions and devices that were set by hand in this plan")
    group.add_argument("--apply", metavar="FILE", help="apply this plan without measuring")
    add_repeated(group, "--why", str, "NAME", "explain the choice for this op; again for each")
    group.add_argument("--plan", dest="written", metavar="PLAN.json", help="write the plan")
    group.add_argument("-o", "--output", metavar="OUT.onnx", help="write the model in the chosen precisions")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Choose the precisions, show the plan, and write the requested files."""
    from rich.text import Text

    for path in (arguments.written, arguments.output):
        writable(path, arguments.model)
    graph, config = load_graph(arguments, screen), config_of(arguments.config, arguments.devices)
    plan = _chosen(graph, config, arguments, screen) if arguments.apply is None else _read(arguments.apply)
    lowered = plan.apply(graph, config) if arguments.apply or arguments.output else graph
    if arguments.written:
        with replacing(arguments.written) as file:
            file.write(plan.to_json().encode())
    if arguments.output:
        pt.save(lowered, arguments.output)
    for path in filter(None, (arguments.written, arguments.output)):
        screen.say(f"wrote {path}")
    screen.write_json(json.loads(plan.to_json()))
    if arguments.why:
        screen.show(Text("\n".join(map(plan.why, arguments.why))))
    else:
        screen.show(plan.to_table(), *map(Text, () if plan.devices is None else plan.devices.measured))
    return exits.OK


def _chosen(graph: pt.Graph, config: Mapping[str, Any], arguments: argparse.Namespace, screen: Screen) -> pt.PrecisionPlan:
    """The plan, chosen by measuring."""
    before = None if arguments.lock_plan is None else _read(arguments.lock_plan)
    lock = {**(before.locked if before else {}), **dict(arguments.lock)}
    placing = placing_of(arguments)
    placing["pin"] = {**(before.pinned if before else {}), **placing["pin"]}
    model = compiled(graph, arguments, screen, config)
    calls = [model_inputs(model, arguments, screen)]
    if not arguments.input:
        seeds = range(arguments.seed + 1, arguments.seed + arguments.calls)
        calls += [dict(zip(calls[0], model.example_inputs(seed), strict=True)) for seed in seeds]
    screen.say("measuring what each op costs and wins")
    return pt.choose_precision(
        graph, calls, arguments.tolerance, arguments.devices or "HETERO:cpu,reference", config,
        precisions=arguments.precisions, win=arguments.win, calibration=arguments.calibration, lock=lock, **placing,
    )


def _read(path: str) -> pt.PrecisionPlan:
    """The plan in a file."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(f"no plan can be read from it: {error}", where=path, remedy="Give what --plan wrote") from error
    return pt.PrecisionPlan.from_json(text)
