"""Check a locked plan: the exit status is 1 if the model, or what its devices support, has changed."""

from __future__ import annotations

import argparse

from partita.accelerators.placement.locked import LockedPlan
from partita.cli import exits
from partita.cli.arguments import add_model, add_repeated, config_of, setting
from partita.cli.models import load_graph
from partita.cli.screen import Screen
from partita.graph.formatting import counted

EXAMPLE = """\
  partita plan --check plan.json model.onnx
  partita plan --check plan.json model.onnx --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    parser.add_argument("--check", metavar="PLAN.json", required=True, help="the plan that `partita place --lock` wrote")
    text = "set a key of a device, like cpu.NUM_THREADS=2"
    add_repeated(parser.add_argument_group("devices"), "--config", setting, "KEY=VALUE", text)


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compare the model with the plan."""
    plan = LockedPlan.load(arguments.check)
    graph = load_graph(arguments, screen)
    lines = plan.differences(graph, config_of(arguments.config, f"HETERO:{','.join(plan.devices)}"))
    screen.write_json({"holds": not lines, "differences": lines})
    screen.show(*lines or [f"the plan holds: {counted(len(plan.nodes), 'op')} on {', '.join(plan.devices)}"])
    return exits.NO if lines else exits.OK
