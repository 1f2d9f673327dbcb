"""Compile a model into one file, for `run` and `bench` on this machine or another.

The file contains machine code, so run only files from people you trust. --key signs it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import partita as pt
from partita.accelerators.building.report import CompileReport
from partita.accelerators.interface.device_list import asked_devices
from partita.accelerators.interface.settings import read_config
from partita.cli import exits
from partita.cli.arguments import add_devices, add_model, config_of, placing_of
from partita.cli.models import compiled, key_of, load_graph, writable
from partita.cli.screen import Screen
from partita.graph.summary import size_text

EXAMPLE = """\
  partita compile zoo:squeezenet --devices HETERO:cpu,reference -o squeezenet.partita
  partita run squeezenet.partita
  partita compile zoo:squeezenet --devices cpu --arch neoverse-v1 -o arm.partita
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_devices(parser)
    parser.add_argument("-o", "--output", metavar="OUT.partita", required=True, help="the file to write")
    text = "compile for another processor or GPU, like neoverse-v1 or sm_90 (the key ARCH)"
    parser.add_argument("--arch", metavar="NAME", help=text)
    parser.add_argument("--key", metavar="FILE", help="sign the compiled model with the bytes of this file")
    parser.add_argument("--why", action="store_true", help="show why subgraphs were compiled, how long it took, what was fused")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compile the model and write it into a file."""
    target = writable(arguments.output, arguments.model)
    assert target is not None
    key = key_of(arguments)
    named = [("", "ARCH", arguments.arch)] if arguments.arch else []
    graph, config = load_graph(arguments, screen), config_of([*arguments.config, *named], arguments.devices)
    _check_export(graph, arguments, config)
    model = compiled(graph, arguments, screen, config)
    model.export(target, key=key)
    size = target.stat().st_size
    fusions = {name: level.to_dict() for name, level in model.fusions.items()} if arguments.why else {}
    screen.write_json({**model.report.to_dict(), "fusions": fusions, "file": str(target), "bytes": size})
    screen.show(*model.report.summary(), *(_why(model) if arguments.why else ()), f"wrote {target}, {size_text(size)}")
    return exits.OK


def _why(model: pt.CompiledModel) -> list[str]:
    """Story of the compilation, as far as known, and the second level of each subgraph."""
    stories = [model.report.compiling()] if isinstance(model.report, CompileReport) else []
    return stories + [f"{name}: {level}" for name, level in model.fusions.items()]


def _check_export(graph: pt.Graph, arguments: argparse.Namespace, config: Mapping[str, Any]) -> None:
    """NotSupported, before anything is compiled, if a device that gets ops cannot export its code."""
    devices = asked_devices(arguments.devices)
    values = read_config(config, devices).by_device
    every = {device.label: device.accelerator.configured(values[device.label]) for device in devices}
    unable = {label: why for label, one in every.items() if (why := one.why_no_export())}
    if unable:
        placed = set(pt.query(graph, arguments.devices, config=config, **placing_of(arguments)).values())
        for label in sorted(placed & unable.keys()):
            cause = f"what {label!r} compiles cannot be written into a file: {unable[label]}"
            raise pt.NotSupported(cause, where=arguments.output)
