"""Find the node that makes the output wrong.

Each subgraph is compared with a trusted device, then parts of the first wrong one. Each of them gets its inputs from the trusted
device, so that errors do not propagate. The exit status is 1 if something is wrong."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import partita as pt
from partita.accelerators.process.atomic import replacing
from partita.cli import exits
from partita.cli.arguments import (
    Usage,
    add_count,
    add_devices,
    add_inputs,
    add_model,
    add_provider,
    config_of,
    positive,
    precise,
    provider_config,
)
from partita.cli.inputs import read_inputs
from partita.cli.models import load_graph, writable
from partita.cli.screen import Screen

EXAMPLE = """\
  partita diagnose model.onnx --devices HETERO:cpu,reference --input x.npy
  partita diagnose model.onnx --devices cpu --precision bf16 --against cpu --tolerance 0.05 --svg errors.svg
  partita diagnose model.onnx --ep OpenVINOExecutionProvider --ep-package onnxruntime_ep_openvino --capsule wrong
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_devices(parser, precision=True)
    provider = parser.add_argument_group("an execution provider of onnxruntime, in place of --devices")
    text = "onnxruntime's name for it; nodes that it does not take run on onnxruntime itself"
    provider.add_argument("--ep", metavar="NAME", help=text)
    add_provider(provider)
    add_inputs(parser.add_argument_group("inputs"))
    group = parser.add_argument_group("diagnosing")
    group.add_argument("--against", default="reference", metavar="D", help="the trusted devices (default: %(default)s)")
    group.add_argument(
        "--tolerance", type=positive, metavar="E", help="the largest error, max|a - b| / max|b| (default: by element types)"
    )
    add_count(group, "--runs", 1, "the number of runs of each part", 2)
    group.add_argument("--isolate", action="store_true", help="run the devices in child processes, so that a crash is a finding")
    group.add_argument("--capsule", metavar="DIR", help="write the faulty op as a capsule, like `partita capsule`")
    group.add_argument("--anonymous", action="store_true", help="with --capsule: replace values and names, and list what stays")
    group.add_argument("--svg", metavar="OUT.svg", help="draw the errors by layer")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Look for what is wrong, and show it."""
    writable(arguments.svg, arguments.model)
    graph = pt.apply_pass(load_graph(arguments, screen), "InferShape", strict=False)
    devices, own = _devices(arguments)
    config = {**precise(config_of(arguments.config, devices), devices, arguments.precision), **own}
    given = read_inputs(arguments.input, [(node.name, node[0].type) for node in graph.inputs], arguments.normalize)
    screen.say("comparing each subgraph with the trusted device")
    diagnosis = pt.diagnose(
        graph,
        devices,
        given or None,
        against=arguments.against,
        tolerance=arguments.tolerance,
        config=config,
        runs=arguments.runs,
        isolate=arguments.isolate,
        seed=arguments.seed,
    )
    if arguments.svg:
        with replacing(arguments.svg) as file:
            file.write(diagnosis.to_svg().encode())
        screen.say(f"wrote {Path(arguments.svg)}")
    if arguments.capsule and diagnosis.fault is not None:
        options = {"against": arguments.against, "tolerance": arguments.tolerance, "anonymous": arguments.anonymous}
        folder = pt.capsule(diagnosis.fault, arguments.capsule, review=screen.note_all, **options)
        screen.say(f"wrote {folder}")
    screen.write_json(diagnosis.to_dict())
    screen.show(diagnosis.to_table(), str(diagnosis))
    return exits.OK if diagnosis.ok else exits.NO


def _devices(arguments: argparse.Namespace) -> tuple[str | None, dict[str, Any]]:
    """The devices, and the configuration of the provider among them."""
    if arguments.ep is None:
        return arguments.devices, {}
    if arguments.devices is not None:
        raise Usage("--ep and --devices are both given", remedy=f"Write --devices HETERO:onnxruntime.{arguments.ep},...")
    label = f"onnxruntime.{arguments.ep}"
    given = {
        "EP_LIBRARY": arguments.ep_library, "EP_PACKAGE": arguments.ep_package, "ISOLATE": arguments.isolate,
        "EP_OPTIONS": {key: value for _, key, value in arguments.ep_option},
    }
    return f"HETERO:{label},onnxruntime,reference", {label: provider_config(given, arguments.ep)}
