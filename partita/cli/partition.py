"""Partition a model: its subgraphs, the reason for each border, and the partitioned model as ONNX.

Each subgraph becomes one call of a function inside the ONNX file, which ONNX Runtime and Netron open."""

from __future__ import annotations

import argparse
from typing import Any

import attrs

import partita as pt
from partita.accelerators.process.atomic import write_text
from partita.cli import exits
from partita.cli.arguments import Usage, add_count, add_model, add_placing, names, placing_of
from partita.cli.models import load_graph, writable
from partita.cli.plugins import blaming, load_plugin
from partita.cli.screen import Screen
from partita.graph.errors import did_you_mean
from partita.graph.formatting import counted
from partita.graph.pictures import to_dot
from partita.graph.pictures.layered import layered_svg
from partita.partition.growth import GROWTHS

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
    group.add_argument("-o", "--output", metavar="OUT.onnx", help="write the partitioned model")
    group.add_argument("--report", metavar="PAGE.html", help="write a page for the browser")
    group.add_argument("--dot", metavar="FILE", help="write a drawing for Graphviz, with the contents of small calls")
    group.add_argument("--svg", metavar="FILE", help="write a drawing with a box for each call, the same on every machine")
    group.add_argument("--plan", metavar="FILE", help="write the plan as JSON, which pt.Plan.from_json reads")
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
        from partita.page import report_page  # start-up

        report_page(partitioned.graph, path, placement=partitioned.placement)
    elif name == "plan":
        write_text(path, partitioned.report.plan.to_json())
    elif name == "dot":
        write_text(path, to_dot(partitioned.graph))
    else:
        write_text(path, layered_svg(partitioned.graph))


@attrs.frozen(slots=True, eq=False)
class Partitioned:
    """A partitioned graph, with the reasons for its partition."""

    graph: pt.Graph
    """The graph with its calls."""
    report: pt.PartitionReport
    """Report of accepted and refused ops."""
    placement: pt.Placement | None
    """Device of each node, if devices were queried."""

    @property
    def unsupported(self) -> dict[str, dict[str, str]]:
        """Ops that no device runs, each with every device's reason."""
        return {} if self.placement is None else self.placement.unsupported


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose how a graph is partitioned."""
    group = parser.add_argument_group("what goes together (default: --devices HETERO:cpu,reference)")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--devices", metavar="D", help="the ops that each device runs: HETERO:first,second")
    one.add_argument("--backend", metavar="NAME", help="a registered backend; each device is one too")
    one.add_argument("--select", type=names, metavar="OPS", help="group connected ops of these types: Conv,Relu")
    one.add_argument(
        "--pattern",
        type=names,
        metavar="PARTS",
        help="match a pattern: 'Conv,BatchNormalization?,Relu|Clip?'",
    )
    group.add_argument(
        "--plugin",
        metavar="FILE.py[:NAME]",
        help="run this Python file and use the properties, selectors and patterns that it defines",
    )
    add_placing(group)
    group.add_argument("--growth", choices=tuple(GROWTHS), help="the algorithm that grows subgraphs")
    add_count(group, "--min-size", 1, "minimum number of ops of a subgraph")
    add_count(group, "--max-subgraphs", 0, "maximum number of subgraphs")


def partition(graph: pt.Graph, arguments: argparse.Namespace, screen: Screen) -> Partitioned:
    """The graph partitioned according to the options."""
    screen.say("partitioning")
    properties = load_plugin(arguments.plugin) if arguments.plugin else []
    limits = {
        "growth": arguments.growth,
        "min_subgraph_size": arguments.min_size,
        "max_subgraphs": arguments.max_subgraphs,
    }
    options: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    placement = None
    chosen = _property(graph, arguments, screen)
    if (arguments.pin or arguments.forbid) and (chosen or arguments.backend or (properties and not arguments.devices)):
        raise Usage("--pin and --forbid go with --devices")
    if chosen is not None:
        options["subgraph_property"] = chosen
    elif arguments.backend:
        options["backend"] = arguments.backend
    elif properties and not arguments.devices:
        options["subgraph_property"] = properties
    elif arguments.plugin and not arguments.devices:
        raise Usage(
            "it defines no property, selector or pattern",
            where=arguments.plugin,
            remedy="Derive one from pt.SubgraphProperty or pt.SubgraphSelector, or name what it registers: --devices, --backend",
        )
    else:
        with blaming(arguments.plugin):
            placement = pt.query(graph, arguments.devices, partial=True, **placing_of(arguments))
        graph = placement.apply(graph)
    with blaming(arguments.plugin):
        partitioned = pt.apply_pass(graph, "PartitionGraph", **options)
    return Partitioned(partitioned, partitioned.attrs["partition_report"], placement)


def _property(graph: pt.Graph, arguments: argparse.Namespace, screen: Screen) -> pt.SubgraphProperty | None:
    """The property of --select or --pattern."""
    if arguments.pattern:
        by_pattern = pt.PatternProperty(pt.Pattern(*arguments.pattern), "pattern")
        _warn_of_absent([op for part in arguments.pattern for op in part.rstrip("?").split("|")], graph, screen)
        return by_pattern
    if not arguments.select:
        return None
    _warn_of_absent(arguments.select, graph, screen)
    return pt.PatternProperty(pt.ContainOpSelector(set(arguments.select)), "select")


def _warn_of_absent(ops: list[str], graph: pt.Graph, screen: Screen) -> None:
    """Warn of requested ops that the model lacks, often a typo."""
    nodes = [node for node in graph.nodes if node.is_op]
    present = {f"{node.domain}::{node.op}" if node.domain else str(node.op) for node in nodes}
    for op in ops:
        if op not in present and op != "*":
            hint = did_you_mean(op, present) or f"it has {', '.join(sorted(present))}"
            screen.warn(f"the model has no op {op!r}: {hint}")
