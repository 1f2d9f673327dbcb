"""Partition a model: its subgraphs, the reason for each border, and the partitioned model as ONNX.

Each subgraph becomes one call of a function inside the ONNX file, which ONNX Runtime and Netron open."""

from __future__ import annotations

import argparse

import partita as pt
from partita.accelerators.process.atomic import write_text
from partita.cli import exits
from partita.cli.arguments import add_model
from partita.cli.choosing import Partitioned, add_choice, partition
from partita.cli.models import load_graph, writable
from partita.cli.screen import Screen
from partita.graph.formatting import counted

EXAMPLE = """\
  partita partition zoo:resnet50 --devices HETERO:cpu,reference -o partitioned.onnx --report page.html
  partita partition zoo:resnet50 --pattern 'Conv,BatchNormalization?,Sum|Add?,Relu?' --svg blocks.svg
  partita partition model.onnx --plugin my_selectors.py --json
"""

NAMED = 12
"""Maximum number of ops named in a warning."""

SHOWN = 30
"""Maximum number of subgraphs in the table without --all."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_choice(parser)
    group = parser.add_argument_group("what to write")
    group.add_argument("-o", "--output", metavar="OUT.onnx", help="the partitioned model")
    group.add_argument("--report", metavar="PAGE.html", help="a page to look at it in a browser")
    group.add_argument("--dot", metavar="FILE", help="a drawing for Graphviz, small calls open")
    group.add_argument(
        "--svg", metavar="FILE", help="a drawing, a box for each call; the same on every machine"
    )
    group.add_argument("--plan", metavar="FILE", help="the plan as JSON: pt.Plan.from_json reads it back")
    group.add_argument("--all", action="store_true", help=f"list all subgraphs, not only {SHOWN}")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Partition the model, show what was done, and write the files that are asked for."""
    paths = {name: getattr(arguments, name) for name in ("output", "report", "dot", "svg", "plan")}
    for path in paths.values():
        writable(path, arguments.model)
    partitioned = partition(load_graph(arguments, screen), arguments, screen)
    for name, path in paths.items():
        if path is not None:
            _write(name, path, partitioned)
            screen.say(f"wrote {path}")
    if screen.as_json:
        placement = {} if partitioned.placement is None else {"placement": partitioned.placement.to_dict()}
        screen.write_json({**partitioned.report.to_dict(), **placement})
        return exits.UNSUPPORTED if partitioned.unsupported else exits.OK
    groups = len(partitioned.report.groups)
    screen.show(partitioned.report.to_table(groups if arguments.all else SHOWN), *partitioned.report.notes)
    if partitioned.placement is not None:
        screen.show(partitioned.placement.to_table())
    if partitioned.unsupported:
        names = ", ".join(list(partitioned.unsupported)[:NAMED])
        screen.warn(f"no device runs {counted(len(partitioned.unsupported), 'op')}, outside all subgraphs: {names}")
    return exits.UNSUPPORTED if partitioned.unsupported else exits.OK


def _write(name: str, path: str, partitioned: Partitioned) -> None:
    if name == "output":
        pt.save(partitioned.graph, path)
    elif name == "report":
        from partita.page import report_page

        report_page(partitioned.graph, path, placement=partitioned.placement)
    elif name == "plan":
        write_text(path, partitioned.report.plan.to_json())
    elif name == "dot":
        from partita.graph.pictures import to_dot

        write_text(path, to_dot(partitioned.graph))
    else:
        from partita.graph.pictures.layered import layered_svg

        write_text(path, layered_svg(partitioned.graph))
