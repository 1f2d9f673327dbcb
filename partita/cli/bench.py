"""Measure how fast a model runs, side by side with other devices.

The contenders alternate in changing order. In each round each of them runs once unmeasured and then several times measured, so
that other load on the machine affects all of them alike. "times the first" is the median over the rounds of the ratio within a
round, with half the distance between its 10th and 90th percentile. Throughput is measured with --streams concurrent calls.
Outputs are compared with those of the first contender. --vs takes devices as --devices does, or a file that `partita compile`
wrote, such as the last release; an engine gets the whole model. If MODEL is such a file, the devices of --vs get its graph."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import partita as pt
from partita.accelerators.interface.device_list import DEFAULT
from partita.accelerators.interface.inlining import unplaced
from partita.accelerators.interface.settings import with_key
from partita.cli import exits
from partita.cli.arguments import (
    Usage,
    add_count,
    add_devices,
    add_fail_on,
    add_inputs,
    add_model,
    add_repeated,
    config_of,
    names,
    positive,
    precise,
)
from partita.cli.models import is_package, key_of, load_model, model_inputs
from partita.cli.screen import Screen
from partita.measuring.bench import offers_precision
from partita.measuring.bench_report import BenchReport, report
from partita.measuring.rounds import Contender, Effort, contender, measure

EXAMPLE = """\
  partita bench zoo:squeezenet --devices cpu --vs onnxruntime,openvino --threads 2
  partita bench zoo:squeezenet --streams 4 --iterations 100 --json
  partita bench net.onnx --devices cpu --vs onnxruntime --fail-on refused,difference,slower=1.1
"""

CONDITIONS = {
    "refused": "a contender of --vs does not run the model",
    "difference": "outputs differ too much from those of the first",
    "slower=X": "the first takes more than X times as long as another (1 without =X)",
}
"""Conditions of --fail-on."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser, package=True)
    add_devices(parser, precision=True)
    group = parser.add_argument_group("measuring")
    add_repeated(group, "--vs", _rivals, "D,D", "devices to compare with, or a compiled model; again for each HETERO:a,b")
    add_count(group, "--threads", 1, "NUM_THREADS of every device that has this key")
    add_count(group, "--batch", 1, "the first dimension of the inputs")
    add_count(group, "--streams", 1, "concurrent calls, for throughput", 1)
    group.add_argument(
        "--seconds",
        type=positive,
        default=5.0,
        metavar="S",
        help="measure for about this long (default: %(default)s)",
    )
    add_count(group, "--iterations", 1, "measure N runs of each contender, instead of --seconds")
    add_count(group, "--warmup", 0, "runs of each contender before the first round", 1)
    add_count(group, "--profile", 0, "show the N slowest rows of the first contender's profile", 0)
    add_fail_on(group, CONDITIONS, "refused")
    add_inputs(parser.add_argument_group("inputs"))


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compile the model for all contenders and measure them in turns."""
    _check_precision(arguments)
    if not arguments.vs and any(name == "slower" for name, _ in arguments.fail_on):
        raise Usage("--fail-on slower compares with others, and there are none", remedy="Name them: --vs onnxruntime")
    start = time.perf_counter()
    graph, model = load_model(arguments, screen, _config(arguments.devices, arguments))
    first = contender(None if graph is None else arguments.devices or DEFAULT, model, {})
    first.compile_seconds = time.perf_counter() - start
    contenders, refused = [first], {}
    for devices in (d for listed in arguments.vs for d in listed):
        try:
            contenders.append(_rival(graph or model.graph, devices, arguments, screen))
        except pt.PartitaError as error:
            refused[devices] = str(error)
    inputs = model_inputs(model, arguments, screen)
    effort = Effort(arguments.seconds, arguments.iterations, arguments.warmup, arguments.streams)
    runs = f"{effort.iterations} runs of each" if effort.iterations else f"for about {effort.seconds:g} s"
    screen.say(f"measuring {runs}")
    measure(contenders, inputs, effort, arguments.precision or "f32")
    measured = report(contenders, inputs, effort, refused, bool(arguments.profile))
    failed = _failed(measured, arguments.fail_on)
    screen.write_json({**measured.to_dict(), "failed": failed})
    screen.show(measured.to_table())
    if measured.profile is not None:
        screen.show(measured.profile.to_table(arguments.profile))
    _warn(measured, failed, screen)
    return exits.NO if failed else exits.OK


def _warn(measured: BenchReport, failed: Sequence[str], screen: Screen) -> None:
    for row in measured.rows:
        for output in row.outputs:
            if not output.ok:
                screen.warn(f"{row.devices}, output {output}")
    for devices, why in measured.refused.items():
        screen.warn(f"{devices} does not run it: {why}")
    for name in failed:
        screen.warn(f"failed on {name}")


def _failed(measured: BenchReport, conditions: Sequence[tuple[str, float]]) -> list[str]:
    """The conditions of --fail-on that hold."""
    fastest = min(row.ratio for row in measured.rows)
    holds = {
        "refused": lambda _: bool(measured.refused),
        "difference": lambda _: not all(output.ok for row in measured.rows for output in row.outputs),
        "slower": lambda times: fastest * times < 1,
    }
    return [name for name, number in conditions if holds[name](number)]


def _rivals(text: str) -> list[str]:
    """Devices separated by commas; a HETERO list has commas of its own."""
    return [text] if text.upper().startswith("HETERO:") else names(text)


def _rival(graph: pt.Graph, devices: str, arguments: argparse.Namespace, screen: Screen) -> Contender:
    if is_package(devices):
        screen.say(f"importing {devices}")
        key = key_of(arguments) if is_package(arguments.model) else None
        return contender(devices, pt.import_model(devices, key=key), {})
    screen.say(f"compiling for {devices}")
    return contender(devices, unplaced(graph), _config(devices, arguments, own=False))


def _config(devices: str | None, arguments: argparse.Namespace, own: bool = True) -> dict[str, Any]:
    """The configuration: --config for the first contender, common settings for all."""
    config: dict[str, Any] = config_of(arguments.config, devices) if own else {}
    if arguments.threads is not None:
        config = with_key(config, devices, "NUM_THREADS", arguments.threads)
    return config if arguments.precision is None else with_key(config, devices, "PRECISION", arguments.precision)


def _check_precision(arguments: argparse.Namespace) -> None:
    """An error unless one of the devices offers a precision, since --precision would have no effect."""
    asked = [arguments.devices, *(devices for listed in arguments.vs for devices in listed)]
    if arguments.precision is None or any(map(offers_precision, asked)):
        return
    precise({}, arguments.devices, arguments.precision)
