"""Show the execution provider on which onnxruntime runs each node, and why it is not a preferred one.

The model is opened with the providers in this order. Providers do not say why they leave a node to others: the reasons are
what is known."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import partita as pt
from partita.cli import exits
from partita.cli.arguments import add_model, add_provider, names, provider_config
from partita.cli.explain import find_node
from partita.cli.models import load_graph, writable
from partita.cli.screen import Screen

EXAMPLE = """\
  partita why model.onnx --providers CUDAExecutionProvider,CPUExecutionProvider
  partita why model.onnx conv_3 --providers OpenVINOExecutionProvider,CPUExecutionProvider --ep-package onnxruntime_ep_openvino
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    parser.add_argument("node", metavar="NODE", nargs="?", help="a node's name, or a value's: only this one")
    group = parser.add_argument_group("providers")
    text = "onnxruntime's names, the preferred one first; --ep-library and --ep-package are of that one"
    group.add_argument("--providers", type=names, required=True, metavar="NAME,...", help=text)
    add_provider(group)
    group.add_argument("--report", metavar="PAGE.html", help="a page to look at it in a browser")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Open the model with the providers, and show where its nodes are."""
    from partita.insight.explaining import explain_model

    writable(arguments.report, arguments.model)
    graph = load_graph(arguments, screen)
    first, *others = arguments.providers
    options = {key: str(value) for _, key, value in arguments.ep_option}
    providers: dict[str, Mapping[str, str]] = {first: options, **{name: {} for name in others}}
    if arguments.ep_library or arguments.ep_package:
        provider_config(arguments, first)
    placement = explain_model(graph, providers)
    if arguments.report:
        pt.report_page(placement, arguments.report)
        screen.say(f"wrote {arguments.report}")
    if arguments.node is not None:
        node = find_node(placement.graph, arguments.node).name
        screen.write_json({"node": node, "device": placement.get(node), "refusals": placement.refusals(node)})
        screen.show(placement.why(node))
        return exits.OK
    screen.write_json(placement.to_dict())
    screen.show(placement.to_table(), *placement.notes)
    return exits.OK
