"""The smallest part of a model that still fails, with the values that its inputs have in a run of the whole.

COMMAND gets two more words: the ONNX file of a candidate, and an .npz file of its inputs ({model} and {inputs} say where). A
candidate fails if the command ends as for the whole model, not with 0. FILE.py:NAME is a function of a graph and its arrays."""

from __future__ import annotations

import argparse
from pathlib import Path

import partita as pt
from partita.cli import exits
from partita.cli.arguments import add_count, add_inputs, add_model, positive
from partita.cli.inputs import read_inputs
from partita.cli.models import load_graph, writable
from partita.cli.screen import Screen
from partita.insight.failing import SECONDS, Command, read_fails
from partita.insight.reducing import MOST

EXAMPLE = """\
  partita reduce model.onnx --fails "python check.py {model} {inputs}" -o small
  partita reduce model.onnx --fails check.py:fails --input x.npy -o small
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_inputs(parser.add_argument_group("inputs"))
    group = parser.add_argument_group("reducing")
    about = "says whether a candidate fails: a command, or FILE.py:NAME"
    group.add_argument("--fails", required=True, metavar="COMMAND", help=about)
    group.add_argument("--against", default="reference", metavar="D", help="runs the whole model (default: %(default)s)")
    group.add_argument("--keep-shapes", action="store_true", help="leave the sizes as they are")
    add_count(group, "--most", 1, "so many candidates", MOST)
    add_count(group, "--repeats", 1, "each is asked about so often: one that fails once fails", 1)
    text = f"a candidate hangs after so many seconds, and all that it started is ended (a command: {SECONDS:g})"
    group.add_argument("--seconds", type=positive, metavar="S", help=text)
    group.add_argument("-o", "--output", metavar="DIR", help="write model.onnx and inputs.npz there")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Reduce the model, show what is left, and write it."""
    target = Path(arguments.output or "", "model.onnx")
    if arguments.output and target.exists():
        writable(str(target), arguments.model)
    graph = pt.apply_pass(load_graph(arguments, screen), "InferShape", strict=False)
    given = read_inputs(arguments.input, [(node.name, node[0].type) for node in graph.inputs], arguments.normalize)
    fails = read_fails(arguments.fails, arguments.seconds)
    screen.say("trying parts of the model")
    reduction = pt.reduce(
        graph,
        given or None,
        fails,
        against=arguments.against,
        shapes=not arguments.keep_shapes,
        most=arguments.most,
        repeats=arguments.repeats,
        seconds=None if isinstance(fails, Command) else arguments.seconds,
        seed=arguments.seed,
    )
    if arguments.output:
        reduction.save(arguments.output)
        screen.say(f"wrote {Path(arguments.output)}")
    screen.write_json({"nodes": reduction.nodes, "ops": reduction.ops, "tries": reduction.tries, "output": arguments.output})
    screen.show(str(reduction))
    return exits.OK
