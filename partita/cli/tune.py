"""Measure a model's kernels in several ways; every later compilation on this machine uses the fastest.

The results are stored beside the cache. Run nothing else meanwhile. Ctrl-C stops the measurement and keeps the results so far."""

from __future__ import annotations

import argparse

import attrs

import partita as pt
from partita.cli import exits
from partita.cli.arguments import add_devices, add_model, config_of, positive
from partita.cli.models import compiled, load_graph
from partita.cli.screen import Screen, table
from partita.graph.formatting import counted

EXAMPLE = """\
  partita tune zoo:squeezenet --devices cpu --seconds 30
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_devices(parser)
    parser.add_argument(
        "--seconds", type=positive, default=60.0, metavar="S", help="measure for about this long (default: %(default)s)"
    )


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compile the model, measure its kernels, and show the results."""
    model = compiled(load_graph(arguments, screen), arguments, screen, config_of(arguments.config, arguments.devices))
    screen.say(f"measuring kernels for about {arguments.seconds:g} s")
    report = pt.tune(model, arguments.seconds, progress=not screen.quiet)
    screen.write_json(attrs.asdict(report))
    rows = [
        (
            kernel.kernel,
            f"{kernel.before_us:,.1f}",
            f"{kernel.after_us:,.1f}",
            str(kernel.tried),
            ", ".join(f"{name}: {choice}" for name, choice in kernel.choices.items()),
        )
        for kernel in report.kernels
    ]
    columns = ("kernel", "µs before", "µs now", "tried", "chosen instead")
    screen.show(table(f"{model.graph.name}: {counted(len(rows), 'kernel')}", columns, rows, right=columns[1:4]))
    return exits.INTERRUPTED if report.interrupted else exits.OK
