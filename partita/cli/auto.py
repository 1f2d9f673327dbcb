"""Measure several placements of a model end to end, and recommend one.

These are HETERO's placement by priority, one with each device first, and several by measured costs. The result is cached, and
--again measures anew. --precision allows lower precisions, within an error of --tolerance. --lock writes the recommended
placement."""

from __future__ import annotations

import argparse

import partita as pt
from partita.accelerators.interface.accelerator import PRECISIONS
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.precision.auto import FULL, SECONDS, TOLERANCE
from partita.cli import exits
from partita.cli.arguments import add_devices, add_model, config_of, placing_of, positive
from partita.cli.models import load_graph, writable
from partita.cli.screen import Screen

EXAMPLE = """\
  partita auto zoo:squeezenet --devices HETERO:cpu,onnxruntime,openvino --seconds 30
  partita auto model.onnx --precision bf16 --tolerance 0.02
  partita auto model.onnx --lock plan.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_devices(parser, default="all that can be used here")
    group = parser.add_argument_group("measuring")
    text = "start no new measurement after this many seconds (default: %(default)s)"
    group.add_argument("--seconds", type=positive, default=SECONDS, metavar="S", help=text)
    text = f"also measure in a lower precision, {' or '.join(name for name in PRECISIONS if name != FULL)}; again for each"
    group.add_argument("--precision", action="append", default=[], choices=tuple(PRECISIONS), help=text)
    text = "recommend no lower precision with a larger error (default: %(default)s)"
    group.add_argument("--tolerance", type=float, default=TOLERANCE, metavar="E", help=text)
    group.add_argument("--again", action="store_true", help="ignore the cached result")
    group.add_argument("--lock", metavar="PLAN.json", help="write the recommended placement, as `partita place --lock` does")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Measure, show the table, and write the placement if requested."""
    writable(arguments.lock, arguments.model)
    devices = arguments.devices or f"HETERO:{','.join(everything())}"
    graph, config = load_graph(arguments, screen), config_of(arguments.config, devices)
    choice = pt.auto(
        graph, devices, config=config, seconds=arguments.seconds, again=arguments.again, progress=not screen.quiet,
        precisions=arguments.precision, tolerance=arguments.tolerance, **placing_of(arguments),
    )
    if arguments.lock:
        choice.lock(arguments.lock)
        screen.say(f"wrote {arguments.lock}")
    screen.write_json(choice.to_dict())
    screen.show(choice.to_table())
    for label, values in choice.config.items():
        screen.say("compile it with " + " ".join(f"--config {label}.{key}={value}" for key, value in values.items()))
    return exits.OK


def everything() -> list[str]:
    """The devices that can be used here, those of last resort at the end."""
    names = [info.name for info in pt.devices() if info.usable]
    return sorted(names, key=lambda name: accelerator(name.partition(".")[0]).last_resort)
