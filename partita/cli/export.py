"""Write a model as a chain of stages: consecutive subgraphs on one device become one stage.

Ray, Triton (--form triton), or a client of servers with the KServe V2 protocol run the stages and move tensors between them. The
predicted times are measured on this machine, or follow from --costs."""

from __future__ import annotations

import argparse

import partita as pt
from partita.accelerators.runtime.package.stages import FORMS, INDEX
from partita.cli import exits
from partita.cli.arguments import add_devices, add_inputs, add_model, add_plan, config_of
from partita.cli.models import load_model, model_inputs
from partita.cli.screen import Screen

EXAMPLE = """\
  partita export zoo:squeezenet --devices HETERO:cpu,reference --forbid MaxPool=cpu --stages stages
  partita export model.onnx --plan plan.json --stages repository --form triton
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser, package=True)
    add_devices(parser)
    group = parser.add_argument_group("stages")
    group.add_argument("--stages", metavar="DIR", required=True, help=f"the folder for the stages and {INDEX}")
    group.add_argument("--form", choices=tuple(FORMS), default="partita", help="the form of each stage (default: %(default)s)")
    add_plan(group)
    group.add_argument("--costs", metavar="COSTS.json", help="predict times from costs that costs.save wrote")
    add_inputs(parser.add_argument_group("inputs for measuring"))


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compile the model, write its stages, and show them."""
    costs = None if arguments.costs is None else pt.Costs.load(arguments.costs)
    _, model = load_model(arguments, screen, config_of(arguments.config, arguments.devices))
    if costs is None:
        screen.say("measuring the stages")
    times = model.profile(model_inputs(model, arguments, screen)) if costs is None and arguments.input else costs
    stages = model.stages(times)
    screen.say(f"writing {arguments.stages}")
    stages.save(arguments.stages, arguments.form)
    screen.write_json(stages.to_dict())
    screen.show(stages.to_table(), f"wrote {arguments.stages}")
    return exits.OK
