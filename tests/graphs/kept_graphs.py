"""The graphs that MXNet's symbols and onnxruntime's own ops become: the ops of each, and a sum over its
text.

`python -m tests.graphs.kept_graphs` writes the file that `test_kept_graphs.py` compares with anew, and with a name it prints that
graph."""

from __future__ import annotations

import re
import sys
import zlib
from pathlib import Path

import partita as pt
from partita.graph.errors import PartitaError
from partita.graph.microsoft import body_of, is_known
from partita.graph.readers.mxnet import load_mxnet
from tests.fuzz.sizes.subjects import drawn, microsoft_names
from tests.mxnet.data import cases

KEPT = Path(__file__).with_name("kept_graphs.txt")

FRACTION = re.compile(r"-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
"""Numbers of floating point: of those that were computed, the last digits differ from one processor to the next."""

KNOWN, UNKNOWN, NONE = "known sizes", "unknown sizes", "no sizes"

SUBJECTS = [*[f"mxnet {name}, {how}" for name in cases() for how in (KNOWN, UNKNOWN, NONE)], *microsoft_names()]


def graph_of(subject: str) -> pt.Graph:
    """The graph of a subject; PartitaError where it is refused."""
    if not subject.startswith("mxnet "):
        return _body(subject)
    name, how = subject.removeprefix("mxnet ").rsplit(", ", 1)
    case = cases()[name]
    shapes = {key: shape if how == KNOWN else (None,) * len(shape) for key, shape in case.shapes.items()}
    return load_mxnet(case.symbol, case.params, *([] if how == NONE else [shapes]))


def _body(subject: str) -> pt.Graph:
    case = drawn(subject, 0)
    if case is None:
        raise PartitaError("it is not read")
    node = next(node for node in case.graph.nodes if is_known(node))
    values = [None if entry is None else entry.node.value for entry in node.inputs]
    return body_of(node, [None if entry is None else entry.type for entry in node.inputs], values)


def line(subject: str) -> str:
    """The line of the file for a subject."""
    try:
        graph = graph_of(subject)
    except PartitaError as error:
        return f"{subject} | {str(error).splitlines()[0]}"
    ops = " ".join(str(node.op) for node in graph.nodes if node.is_op)
    return f"{subject} | {text_sum(graph)} {ops}"


def text_sum(graph: pt.Graph) -> str:
    """A sum over a graph's text, with four digits of each fraction."""
    text = FRACTION.sub(lambda number: f"{float(number[0]):.3e}", str(graph))
    return f"{zlib.crc32(text.encode()):08x}"


if __name__ == "__main__":
    if sys.argv[1:]:
        print(str(graph_of(sys.argv[1])))
    else:
        KEPT.write_text("".join(f"{line(subject)}\n" for subject in SUBJECTS), "utf-8")
