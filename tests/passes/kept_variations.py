"""The sizes that small variations of single ops tell: those of the results, and what those of the inputs have to fulfil.

`python -m tests.passes.kept_variations` writes the file that `test_kept_variations.py` compares with anew. Of variations of one
attribute that end the same, the first is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import partita as pt
from partita.graph.errors import PartitaError
from partita.passes.infer.reading import Reading, symbolic
from tests.numerics.case import Case
from tests.numerics.kept_variations import CASES, variations
from tests.passes.kept_sizes import told

KEPT = Path(__file__).with_name("kept_variations.txt")

WAYS = {"no size": lambda axis: False, "all but the first": lambda axis: axis > 0, "the first": lambda axis: axis == 0}
"""The axes whose sizes are static."""


def graph_of(case: Case, inputs: Sequence[Any], attrs: Mapping[str, Any], version: int, way: str) -> pt.Graph:
    """The node as a graph; integers of few elements are constants."""
    entries: list[Any] = []
    for i, x in enumerate(inputs):
        if x is None:
            entries.append(None)
        elif x.dtype.kind in "iu" and x.size < 9:
            entries.append(pt.constant(x, name=f"c{i}"))
        else:
            shape = [size if WAYS[way](axis) else None for axis, size in enumerate(x.shape)]
            entries.append(pt.variable(f"x{i}", x.dtype.name, shape))
    node = pt.op(case.op, *entries, name="node", n_outputs=case.outputs, opset=version, **attrs)
    return pt.Graph([node], name="one", opsets={"": version})


def lines(subject: str) -> Iterator[tuple[str, str]]:
    """The name of each variation of a subject, and what it tells."""
    case = CASES[subject]
    for name, *rest in variations(case):
        for way in WAYS if "=" in name or name.startswith("input") else list(WAYS)[:1]:
            try:
                graph = graph_of(case, *rest, way)
                yield f"{name}, {way}", told(Reading(graph, [symbolic(node[0]) for node in graph.inputs]), graph)
            except PartitaError as error:
                yield f"{name}, {way}", error.cause.partition(" typestr:")[0]


@cache
def kept() -> dict[str, dict[str, str]]:
    """The lines of the file, by their subjects."""
    listed: dict[str, dict[str, str]] = {}
    for line in KEPT.read_text("utf-8").splitlines():
        subject, name, expected = line.split(" | ", 2)
        listed.setdefault(subject, {})[name] = expected
    return listed


def _worth_keeping() -> Iterator[str]:
    seen = set()
    for subject, case in CASES.items():
        for name, expected in lines(subject):
            varied = name.partition("=")[0] if "=" in name else name.rpartition(",")[0]
            if (case.op, varied, expected) not in seen:
                seen.add((case.op, varied, expected))
                yield f"{subject} | {name} | {expected}\n"


if __name__ == "__main__":
    KEPT.write_text("".join(_worth_keeping()), "utf-8")
