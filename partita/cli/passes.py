"""List the passes that a device applies to a model, what each changed and how long it took.

Without --device: the passes of --optimize. --dump writes the graph as text before the first pass and after each pass; --without
leaves one out, to find the one at fault. A device applies the passes to each of its subgraphs; this verb applies them to the
whole model, and compiles no kernels."""

from __future__ import annotations

import argparse

import attrs

import partita as pt
from partita.accelerators.interface.device_list import asked_devices
from partita.accelerators.interface.settings import read_config
from partita.cli import exits
from partita.cli.arguments import Usage, add_model, add_repeated, config_of, setting
from partita.cli.models import load_graph
from partita.cli.screen import Screen, table
from partita.graph.formatting import counted
from partita.passes import watch_passes

EXAMPLE = """\
  partita passes zoo:resnet50 --device cpu
  partita passes model.onnx --device cpu --dump before-and-after --verify
  partita passes model.onnx --device cpu --without FoldScales --without NarrowTypes
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    group = parser.add_argument_group("passes")
    group.add_argument("--device", metavar="D", help="the device: cpu, cuda or opencl (default: the passes of --optimize)")
    add_repeated(group, "--config", setting, "KEY=VALUE", "set a key of the device, like PRECISION=bf16")
    add_repeated(group, "--without", str, "PASS", "leave this pass out; again for each")
    group.add_argument("--dump", metavar="DIR", help="write the graph as text here, before the first pass and after each")
    group.add_argument("--verify", action="store_true", help="check the graph after each pass")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Apply the passes, and show a row for each."""
    if arguments.config and arguments.device is None:
        raise Usage("--config goes with --device")
    graph = load_graph(arguments, screen)
    with watch_passes(dump=arguments.dump, verify=arguments.verify) as trace:
        if arguments.device is None:
            pt.apply_pass(graph, "Default", without=arguments.without)
        else:
            _apply_device_passes(graph, arguments)
    rows = [attrs.asdict(record) for record in trace]
    screen.write_json({"passes": rows, "seconds": trace.seconds})
    seconds = ["seconds", "verify_seconds"] if arguments.verify else ["seconds"]
    columns = ("pass", "nodes before", "after", "ms", "verify ms")[: 3 + len(seconds)]
    cells = [
        (r["name"], r["nodes_before"], r["nodes_after"] if r["changed"] else "=", *(f"{1e3 * r[s]:.1f}" for s in seconds))
        for r in rows
    ]
    screen.show(
        table(f"passes of {arguments.device or '--optimize'}", columns, cells, right=columns[1:]),
        f"{counted(len(rows), 'pass', 'passes')}, {1e3 * trace.seconds:.1f} ms",
    )
    if arguments.dump:
        screen.say(f"wrote {arguments.dump}")
    return exits.OK


def _apply_device_passes(graph: pt.Graph, arguments: argparse.Namespace) -> None:
    """Do what the device does to a subgraph before it compiles kernels."""
    devices = asked_devices(arguments.device)
    if len(devices) != 1:
        raise Usage(f"--device takes one device, not {arguments.device}")
    (device,) = devices
    if "SKIP_PASSES" not in device.accelerator.get_metric("SUPPORTED_CONFIG_KEYS"):
        cause = f"device {device.label!r} has no passes of its own"
        raise pt.NotSupported(cause, remedy="cpu, cuda and opencl have some; for another, leave --device out")
    config = config_of(arguments.config, arguments.device)
    skipped = read_config(config, devices).by_device[device.label]["SKIP_PASSES"]
    config.setdefault(device.label, {})["SKIP_PASSES"] = [*skipped, *arguments.without]
    device.accelerator.second_level(graph, read_config(config, devices).by_device[device.label])
