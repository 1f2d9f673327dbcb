"""Explain why a node is where it is: its subgraph, its device, what refused it, and each border at it.

NODE is the name of a node, or of one of its outputs. For a compiled model: where the node runs, and why not elsewhere."""

from __future__ import annotations

import argparse

import partita as pt
from partita.accelerators.interface.device_list import asked_devices
from partita.accelerators.interface.second_level import SecondLevel
from partita.accelerators.runtime.package.imported_report import ImportedReport, read_report
from partita.cli import exits
from partita.cli.arguments import add_model
from partita.cli.models import load_graph, reading_package, takes_package
from partita.cli.partition import Partitioned, add_choice, partition
from partita.cli.screen import Screen
from partita.graph.errors import GraphError, did_you_mean

EXAMPLE = """\
  partita explain zoo:resnet50 n3 --devices HETERO:cpu,reference
  partita explain zoo:resnet50 n3 --select Conv,Relu
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser, package=True)
    parser.add_argument("node", metavar="NODE", help="the name of a node, or of one of its outputs")
    add_choice(parser)


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Show where one node is and why."""
    if takes_package(arguments):
        return _package(arguments, screen)
    graph = pt.apply_pass(load_graph(arguments, screen), "InferShape", strict=False)
    node = find_node(graph, arguments.node)
    partitioned = partition(graph, arguments, screen)
    level = _second_level(node, partitioned, arguments.devices)
    screen.write_json(_as_data(node, partitioned) | ({"kernels": level.to_dict()} if level is not None else {}))
    screen.show(_described(node))
    if partitioned.placement is not None:
        screen.show(partitioned.placement.why(node.name))
    screen.show(partitioned.report.explain(node.name), *_ways(node.name, partitioned.report))
    if level is not None:
        screen.show(level.explain(node.name))
    return exits.UNSUPPORTED if node.name in partitioned.unsupported else exits.OK


def find_node(graph: pt.Graph, name: str) -> pt.Node:
    """The op node of that name, or the one that computes the value of that name."""
    makers = {name: entry.node for name, entry in zip(graph.output_names, graph.outputs)}
    makers |= {value: node for node in graph.nodes if node.is_op for value in node.output_names if value}
    node = graph[name] if name in graph else makers.get(name)
    if node is None:
        known = [node.name for node in graph.nodes if node.is_op]
        of_op = [node.name for node in graph.nodes if node.op == name]
        some = (
            f"The nodes with that op are {', '.join(of_op[:6])}{', ...' if len(of_op) > 6 else ''}"
            if of_op
            else None
        )
        raise GraphError(
            f"there is no node {name!r}",
            where=f"graph {graph.name!r}",
            remedy=some
            or did_you_mean(name, {*known, *makers})
            or "`partita inspect MODEL --nodes` lists them",
        )
    if not node.is_op:
        kind = "an input" if node.is_variable else "a constant"
        raise GraphError(f"{name!r} is {kind}", where=f"graph {graph.name!r}", remedy="Ask for a node that reads it")
    return node


def _second_level(node: pt.Node, partitioned: Partitioned, devices: str | None) -> SecondLevel | None:
    """The kernels of the node's subgraph; None if its device does not report them."""
    report = partitioned.report
    home = next((call for group, call in zip(report.groups, report.calls) if node.name in group.nodes), None)
    if partitioned.placement is None or home is None:
        return None
    call = partitioned.graph[home]
    device = next((device for device in asked_devices(devices) if device.label == call.affinity), None)
    if device is None or call.subgraph is None:
        return None
    return device.accelerator.second_level(call.subgraph, device.accelerator.full_config({}))


def _described(node: pt.Node) -> str:
    read = ", ".join(f"{entry.name}: {entry.type or '?'}" for entry in node.reads if not entry.node.is_constant)
    results = ", ".join(f"{entry.name}: {entry.type or '?'}" for entry in node.outputs if entry.name)
    return f"{node.name} ({node.op}): ({read}) -> ({results})"


def _ways(name: str, report: pt.PartitionReport) -> list[str]:
    """The path of each cycle that a border at the node avoids."""
    borders = [border for border in report.borders if name in (border.producer, border.consumer)]
    paths = [(border, report.cycle_path(border)) for border in borders]
    return [f"  the cycle of {b.producer} -> {b.consumer}: {' -> '.join(path)}" for b, path in paths if path]


def _as_data(node: pt.Node, partitioned: Partitioned) -> dict[str, object]:
    report, name = partitioned.report, node.name
    home = next((call for group, call in zip(report.groups, report.calls) if name in group.nodes), None)
    data: dict[str, object] = {"node": name, "op": node.op, "subgraph": home}
    data["outside"] = next(({"rule": row.rule, "text": row.text} for row in report.outside if row.node == name), None)
    if partitioned.placement is not None:
        data |= {"device": partitioned.placement.get(name), "refusals": partitioned.placement.refusals(name)}
    path = report.cycle_path
    borders = [border for border in report.borders if name in (border.producer, border.consumer)]
    data["borders"] = [
        {
            "producer": b.producer,
            "consumer": b.consumer,
            "rule": b.rule,
            "text": b.text,
            "path": list(path(b) or ()),
        }
        for b in borders
    ]
    return data


def _package(arguments: argparse.Namespace, screen: Screen) -> int:
    """Explain a compiled model from the exporter's report; nothing is loaded."""
    with reading_package(arguments) as package:
        why = ImportedReport(read_report(package)).why(arguments.node)
    screen.write_json({"node": arguments.node, "text": why})
    screen.show(why)
    return exits.OK
