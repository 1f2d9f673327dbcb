"""Small variations of MXNet's symbols and of onnxruntime's own ops: a sum over the text of each graph, or why it is refused.

`python -m tests.graphs.kept_variations` writes the file that `test_kept_variations.py` compares with anew, and with a line of it
(its first two parts) it prints that graph. Of those that end the same, the first is kept."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import partita as pt
from partita.graph.errors import PartitaError
from partita.graph.readers.mxnet import load_mxnet
from partita.graph.readers.mxnet.ops.table import converter_of
from tests.fuzz.sizes.subjects import microsoft_names
from tests.graphs.kept_graphs import text_sum
from tests.graphs.variations import nodes, symbols
from tests.mxnet.data import Case, cases

KEPT = Path(__file__).with_name("kept_variations.txt")


def subjects() -> list[str]:
    """The graphs that are varied. Of symbols that differ only in the spelling of an op, the first."""
    kinds = {_kind(case): name for name, case in reversed(cases().items())}
    return [*(f"mxnet {name}" for name in cases() if name in kinds.values()), *microsoft_names()]


def _kind(case: Case) -> object:
    ops = [(_code(node["op"]), str(node.get("attrs"))) for node in case.symbol["nodes"]]
    return tuple(ops), tuple(case.shapes.values())


def _code(op: str) -> object:
    """The code that converts an op, which ops of one form share."""
    convert = getattr(converter_of(op), "convert", None)
    return getattr(convert, "__code__", type(convert))


def graphs(subject: str) -> Iterator[tuple[str, pt.Graph | PartitaError]]:
    """Each variation's name, and its graph or the error that refuses it."""
    if not subject.startswith("mxnet "):
        yield from nodes(subject)
        return
    case = cases()[subject.removeprefix("mxnet ")]
    for name, symbol, shapes in symbols(case):
        try:
            yield name, load_mxnet(symbol, case.params, shapes)
        except PartitaError as error:
            yield name, error


def lines(subject: str) -> Iterator[tuple[str, str]]:
    """The name of each variation of a subject, and what becomes of it."""
    for name, graph in graphs(subject):
        if isinstance(graph, PartitaError):
            yield name, graph.cause.partition(" typestr:")[0]  # what follows are words of ONNX's checker
        else:
            yield name, f"{text_sum(graph)}, {sum(node.is_op for node in graph.nodes)} ops"


@cache
def kept() -> dict[str, dict[str, str]]:
    """The lines of the file, by their subjects."""
    listed: dict[str, dict[str, str]] = {}
    for line in KEPT.read_text("utf-8").splitlines():
        subject, name, result = line.split(" | ", 2)
        listed.setdefault(subject, {})[name] = result
    return listed


def _worth_keeping() -> Iterator[str]:
    refused = set()
    for subject in subjects():
        seen = set()
        for name, result in lines(subject):
            varied = name.partition("=")[0] if "=" in name else name
            key = varied, re.sub(r", and is .*", "", result)
            if key not in seen and key not in refused:
                (seen if result.endswith(" ops") else refused).add(key)
                yield f"{subject} | {name} | {result}\n"


if __name__ == "__main__":
    if sys.argv[1:]:
        wanted, _, variation = sys.argv[1].partition(" | ")
        print(next(str(graph) for name, graph in graphs(wanted) if name == variation))
    else:
        KEPT.write_text("".join(_worth_keeping()), "utf-8")
