"""Find the smallest part of a model that still fails, with the values that its inputs have in a run of the whole.

COMMAND gets two arguments, in place of {model} and {inputs} or at its end: the ONNX file of a candidate, and an .npz file of its
inputs. A candidate fails if the command has the same exit status as for the whole model, which must not be 0. FILE.py:NAME is a
function that takes a graph and its arrays."""

from __future__ import annotations

import argparse
import os
import runpy
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import partita as pt
from partita.accelerators import AcceleratorError
from partita.cli import exits
from partita.cli.arguments import Usage, add_count, add_inputs, add_model, positive
from partita.cli.inputs import read_inputs
from partita.cli.models import load_graph, writable
from partita.cli.screen import Screen
from partita.graph.graph import Graph
from partita.insight.reducing import MOST, Fails, write_candidate

EXAMPLE = """\
  partita reduce model.onnx --fails "python check.py {model} {inputs}" -o small
  partita reduce model.onnx --fails check.py:fails --input x.npy -o small
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_inputs(parser.add_argument_group("inputs"))
    group = parser.add_argument_group("reducing")
    about = "the test that fails: a command, or FILE.py:NAME"
    group.add_argument("--fails", required=True, metavar="COMMAND", help=about)
    group.add_argument("--against", default="reference", metavar="D", help="devices of the whole model (default: %(default)s)")
    group.add_argument("--keep-shapes", action="store_true", help="do not reduce sizes")
    add_count(group, "--most", 1, "the most candidates", MOST)
    add_count(group, "--repeats", 1, "test each candidate N times; one failure counts", 1)
    text = f"time limit for a candidate, whose processes are then killed (default for a command: {SECONDS:g})"
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


MODEL, INPUTS = "{model}", "{inputs}"
"""Placeholders for the two files in a command."""

SECONDS = 600.0
"""Default time limit of a command in seconds."""

HUNG = -1000
"""Status of a command that exceeds its time limit, unlike any exit status."""


class Command:
    """Runs a command on each candidate. The failure is its exit status for the whole model, which is not 0."""

    def __init__(self, line: str, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        try:
            self.words = shlex.split(line)
        except ValueError as error:
            raise Usage(f"--fails {line!r:.80}: {error}", remedy="Close each quotation mark") from None
        self.status: int | None = None
        if MODEL not in line:
            self.words.append(MODEL)
        if INPUTS not in line:
            self.words.append(INPUTS)

    def __call__(self, graph: Graph, inputs: Mapping[str, Any]) -> bool:
        """True if it ends with the same status as for the first graph."""
        with tempfile.TemporaryDirectory(prefix="partita-reduce-") as name:
            folder = Path(name)
            write_candidate(graph, inputs, folder)
            files = {MODEL: str(folder / "model.onnx"), INPUTS: str(folder / "inputs.npz")}
            status = self._status([_filled(word, files) for word in self.words])
        if self.status is None:
            self.status = status
        return status == self.status != 0

    def _status(self, words: list[str]) -> int:
        """Exit status of the command. It runs in a process group of its own, all of which is killed at the end."""
        quiet = subprocess.DEVNULL
        try:
            process = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        except OSError as error:
            raise AcceleratorError(
                f"the command cannot be run: {error.strerror or error}",
                where=f"--fails {shlex.join(words[:1])}",
                remedy="Name a program, or a function as FILE.py:NAME",
            ) from error
        try:
            return process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            return HUNG
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _filled(word: str, files: Mapping[str, str]) -> str:
    for mark, path in files.items():
        word = word.replace(mark, path)
    return word


def read_fails(text: str, seconds: float | None = None) -> Fails:
    """The function FILE.py:NAME, or else the command."""
    path, colon, name = text.rpartition(":")
    if not (colon and path.endswith(".py") and name.isidentifier()):
        return Command(text, seconds or SECONDS)
    if not Path(path).is_file():
        raise AcceleratorError("there is no such file", where=f"--fails {text}", remedy="Write FILE.py:NAME, or a command")
    function = runpy.run_path(path).get(name)
    if not callable(function):
        raise AcceleratorError(f"it defines no function {name!r}", where=path, remedy="Define NAME(graph, inputs) -> bool")
    fails: Fails = function
    return fails
