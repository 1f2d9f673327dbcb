"""Compare two models, exports or devices on the same inputs, layer by layer.

MODEL (side A) is compared with B, or with itself on other devices (--other-devices). Values are matched by name, and outputs
without a match by position. The outputs are listed last. The exit status is 1 if an output differs too much, or if only one side
has it. For compiled models and locked plans only the outputs are compared. --seconds also measures both sides, alternating."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

import partita as pt
from partita.accelerators.runtime.profile import PLAIN
from partita.by_layer import Layer, Side, compare_layers, compare_outputs, matched_outputs
from partita.cli import exits
from partita.cli.arguments import add_devices, add_inputs, add_model, add_plan, add_repeated, config_of, positive, setting
from partita.cli.models import is_package, load_model, model_inputs
from partita.cli.screen import Screen, table
from partita.graph.formatting import counted
from partita.measuring.bench_report import BenchReport, report
from partita.measuring.rounds import Effort, contender, measure

SHOWN = 8
"""Maximum number of outputs listed in a warning."""

EXAMPLE = """\
  partita compare lowered.onnx model.onnx --tolerance 0.02
  partita compare lowered.onnx zoo:squeezenet --input image.npy --json
  partita compare model.onnx --devices cpu --other-devices onnxruntime --outputs-only
  partita compare model.onnx --plan new.json --other-plan old.json --seconds 10
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser, package=True)
    parser.add_argument("other", metavar="B", nargs="?", help="the model to compare with (default: MODEL)")
    add_devices(parser)
    add_plan(parser.add_argument_group("placement"))
    others = parser.add_argument_group("the other side")
    others.add_argument("--other-devices", metavar="D", help="the devices of B (default: those of A)")
    add_plan(others, "--other-plan", " of B")
    add_repeated(others, "--other-config", setting, "KEY=VALUE", "like --config, for the devices of B (default: that of A)")
    add_inputs(parser.add_argument_group("inputs"))
    group = parser.add_argument_group("comparing")
    group.add_argument(
        "--tolerance",
        type=positive,
        default=1e-2,
        metavar="E",
        help="the largest relative error allowed in an output (default: %(default)s)",
    )
    group.add_argument("--outputs-only", action="store_true", help="compare only the outputs, of both models unchanged")
    group.add_argument("--seconds", type=positive, metavar="S", help="also measure both for about this long, alternating")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run both, and show how far their values are apart."""
    config = config_of(arguments.config, arguments.devices)
    graph, model = load_model(arguments, screen, config)
    theirs = _other_arguments(arguments)
    other_config = config_of(theirs.config, theirs.devices)
    other_graph, other = load_model(theirs, screen, other_config)
    _require_same_inputs(model, other, arguments)
    inputs = model_inputs(model, arguments, screen)
    screen.say("running both sides")
    planned = arguments.plan or theirs.plan
    if arguments.outputs_only or planned or graph is None or other_graph is None:
        layers = compare_outputs(model, other, inputs)
    else:
        layers = compare_layers(
            Side(graph, arguments.devices, config), Side(other_graph, theirs.devices, other_config), inputs
        )
    times = None if arguments.seconds is None else _times(model, other, inputs, arguments.seconds, screen)
    own = [name for name, _ in model.properties.outputs]
    matched = matched_outputs(own, [name for name, _ in other.properties.outputs])
    lone = {"A": sorted({*own} - {*matched}), "B": sorted({*matched} - {*own})}
    first = next((layer for layer in layers if not layer.relative <= arguments.tolerance), None)
    good = all(layer.relative <= arguments.tolerance for layer in layers if layer.is_output) and not any(lone.values())
    sides = {"A": _described(arguments, model), "B": _described(theirs, other)}
    data = {"ok": good, "sides": sides, "tolerance": arguments.tolerance, "layers": [attrs.asdict(layer) for layer in layers]}
    first_off = None if first is None else first.name
    timed = {} if times is None else {"times": times.to_dict()}
    screen.write_json({**data, "lone": sorted(lone["A"] + lone["B"]), "first_off": first_off, **timed})
    shown = [i for i in (0, 1) if any(layer.types[i] not in PLAIN for layer in layers)]
    columns = ("value", "op", "largest error", "relative", "cosine", *(("kernel of A", "kernel of B")[i] for i in shown), "")
    rows = [_row(layer, arguments.tolerance, shown) for layer in layers]
    title = f"A, {sides['A']}, against B, {sides['B']}: {counted(len(layers), 'value')} of the same name"
    screen.show(table(title, columns, rows, right=columns[2:5]))
    if times is not None:
        screen.show(times.to_table())
    if first is not None:
        screen.show(f"the first value that is off: {first.name} ({first.op}), {first.relative:.2g}")
    for side, names in lone.items():
        if names:
            screen.warn(f"only {side} has {counted(len(names), 'output')}: {', '.join(names[:SHOWN])}")
    return exits.OK if good else exits.NO


def _times(
    model: pt.CompiledModel, other: pt.CompiledModel, inputs: Mapping[str, Any], seconds: float, screen: Screen
) -> BenchReport:
    """The times of both sides, which take turns."""
    screen.say(f"measuring both for about {seconds:g} s")
    sides = [contender(name, side, {}) for name, side in (("A", model), ("B", other))]
    effort = Effort(seconds)
    measure(sides, inputs, effort)
    return report(sides, inputs, effort, {}, False)


def _other_arguments(arguments: argparse.Namespace) -> argparse.Namespace:
    """Command line for the other side."""
    own = {"model": arguments.other or arguments.model, "params": None if arguments.other else arguments.params}
    plan = None if arguments.other_devices else arguments.plan
    if is_package(own["model"]):
        plan = None
    else:
        own["key"] = None
    own["plan"] = arguments.other_plan or plan
    devices = arguments.other_devices or (None if arguments.other_plan else arguments.devices)
    settings = arguments.other_config or ([] if arguments.other_devices else arguments.config)
    return argparse.Namespace(**{**vars(arguments), **own, "devices": devices, "config": settings})


def _described(arguments: argparse.Namespace, model: pt.CompiledModel) -> str:
    """The side: `model.onnx on cpu, reference by plan.json`."""
    by = f" by {arguments.plan}" if arguments.plan else ""
    return f"{arguments.model} on {', '.join(model.properties.devices)}{by}"


def _row(layer: Layer, tolerance: float, shown: Sequence[int]) -> tuple[str, ...]:
    """A table row; a side's kernel types are shown if one of them is not all float32."""
    verdict = "" if not layer.is_output else "ok" if layer.relative <= tolerance else f"output, more than {tolerance:g}"
    numbers = f"{layer.absolute:.3g}", f"{layer.relative:.2g}", f"{layer.cosine:.6f}"
    return layer.name, layer.op, *numbers, *(layer.types[i] for i in shown), verdict


def _require_same_inputs(model: pt.CompiledModel, other: pt.CompiledModel, arguments: argparse.Namespace) -> None:
    """Raise an error unless both models have the same inputs."""
    own = dict(model.properties.inputs)
    missing = [name for name, _ in other.properties.inputs if name not in own]
    if missing:
        raise pt.InputError(
            f"it reads {missing[0]!r}, which {arguments.model} lacks",
            where=arguments.other,
            remedy="Compare models whose inputs have the same names",
        )
