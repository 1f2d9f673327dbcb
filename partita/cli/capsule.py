"""Write one subgraph into a folder, with all that is needed to run it elsewhere, and nothing else of the model.

The folder contains the subgraph as ONNX, its inputs and expected outputs, its plan, versions, and run.py, which runs it."""

from __future__ import annotations

import argparse

import partita as pt
from partita.cli import exits
from partita.cli.arguments import add_devices, add_inputs, add_model, config_of, positive, precise
from partita.cli.inputs import read_inputs
from partita.cli.models import load_graph
from partita.cli.screen import Screen

EXAMPLE = """\
  partita capsule model.onnx --subgraph 3 --devices HETERO:cpu,reference --input x.npy -o capsule
  partita capsule model.onnx --subgraph cpu_0 --anonymous -o capsule
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_devices(parser, precision=True)
    add_inputs(parser.add_argument_group("inputs"))
    group = parser.add_argument_group("capsule")
    group.add_argument("--subgraph", default="0", metavar="N", help="the number or name of the subgraph (default: %(default)s)")
    text = "the device that computes the expected outputs (default: %(default)s)"
    group.add_argument("--against", default="reference", metavar="D", help=text)
    group.add_argument("--tolerance", type=positive, metavar="E", help="the largest error allowed (default: by element types)")
    text = "replace values by others with the same statistics or range, and names; list first what stays"
    group.add_argument("--anonymous", action="store_true", help=text)
    text = "with --anonymous: keep the text of this attribute of custom ops"
    group.add_argument("--keep", action="append", default=[], metavar="ATTRIBUTE", help=text)
    group.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Cut the subgraph out, and write the folder."""
    graph = pt.apply_pass(load_graph(arguments, screen), "InferShape", strict=False)
    config = precise(config_of(arguments.config, arguments.devices), arguments.devices, arguments.precision)
    given = read_inputs(arguments.input, [(node.name, node[0].type) for node in graph.inputs], arguments.normalize)
    screen.say("compiling, and running the model up to the subgraph")
    folder = pt.capsule(
        graph,
        arguments.output,
        _subgraph(arguments.subgraph),
        arguments.devices,
        given or None,
        against=arguments.against,
        config=config,
        tolerance=arguments.tolerance,
        anonymous=arguments.anonymous,
        keep=arguments.keep,
        review=screen.note_all,
        seed=arguments.seed,
    )
    files = sorted(path.name for path in folder.iterdir())
    screen.write_json({"folder": str(folder), "files": files})
    screen.show(f"{folder}: {', '.join(files)}")
    return exits.OK


def _subgraph(text: str) -> int | str:
    """Number of a subgraph, or its name; no model has more than a million."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else text
