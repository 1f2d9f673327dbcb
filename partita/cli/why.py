"""Show the execution provider on which onnxruntime runs each node, and why it is not a preferred one.

The model is opened with the providers in this order. Providers give no reasons for the nodes that they leave to others; the
reasons shown are those known to Partita."""

from __future__ import annotations

import argparse

import partita as pt
from partita.cli import exits
from partita.cli.arguments import Usage, add_model, add_repeated, names, provider_config, setting
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
    parser.add_argument("node", metavar="NODE", nargs="?", help="show only this node, or the one with this output")
    group = parser.add_argument_group("providers")
    text = "onnxruntime's names, the preferred one first; an option below that names no provider belongs to it"
    group.add_argument("--providers", type=names, required=True, metavar="NAME,...", help=text)
    for option, text in (("library", "a provider's library"), ("package", "the installed package that contains a provider")):
        group.add_argument(f"--ep-{option}", action="append", default=[], metavar="[NAME=]WHAT", help=f"{text}; again for each")
    add_repeated(group, "--ep-option", setting, "[NAME.]KEY=VALUE", "an option of a provider; again for each")
    group.add_argument("--report", metavar="PAGE.html", help="write a page for the browser")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Open the model with the providers, and show where its nodes are."""
    from partita.insight.explaining import explain_model  # start-up

    writable(arguments.report, arguments.model)
    graph = load_graph(arguments, screen)
    providers: dict[str, dict[str, str]] = {name: {} for name in arguments.providers}
    for name, key, value in arguments.ep_option:
        providers[_one_of(name, arguments)][key] = str(value)
    for key, sources in (("EP_LIBRARY", arguments.ep_library), ("EP_PACKAGE", arguments.ep_package)):
        for source in sources:
            name, _, where = source.rpartition("=")
            provider_config({key: where}, _one_of(name, arguments))
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


def _one_of(name: str, arguments: argparse.Namespace) -> str:
    """The provider with this name among those asked for; the first for an empty name."""
    if name and name not in arguments.providers:
        cause = f"an option is of {name!r}, which is none of the providers"
        raise Usage(cause, remedy=f"They are {', '.join(arguments.providers)}")
    return name or str(arguments.providers[0])
