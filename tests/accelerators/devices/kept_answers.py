"""Answers about small variations of single ops before they run: the engines' reasons against them, their FLOPs, the least sizes
of their results, and a checksum of the ops that they are taken apart into.

`python -m tests.accelerators.devices.kept_answers` writes the file that `test_kept_answers.py` compares with. Of variations of
an op with equal answers the first is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.engines.lost_nan import loses_nan
from partita.accelerators.engines.lower_bounds import least_sizes
from partita.accelerators.engines.onnxruntime import quirks as of_onnxruntime
from partita.accelerators.engines.openvino import quirks as of_openvino
from partita.accelerators.engines.openvino.index_checks import GivenIndices
from partita.accelerators.errors import RunError
from partita.accelerators.precision.lowered_ops import bytes_won, weight_of_product, why_not
from partita.accelerators.tvm.lower.dynamic_sizes import wrong_size
from partita.accelerators.tvm.query.known_wrong import known_wrong
from partita.graph.flops import count_flops
from partita.graph.ops.traits import ops
from partita.passes.decompose import decomposed
from partita.passes.fold_constants import labour
from tests.graphs.kept_graphs import text_sum
from tests.numerics.case import Case
from tests.numerics.kept_variations import CASES, variations

KEPT = Path(__file__).with_name("kept_answers.txt")

WAYS = {
    "all sizes": lambda axis: True, "the first": lambda axis: axis == 0, "no size": lambda axis: False,
    "inputs alone": lambda axis: True,
}
"""The axes whose sizes are static."""


def graph_of(case: Case, inputs: Sequence[Any], attrs: Mapping[str, Any], version: int, way: str) -> pt.Graph:
    """The node as a graph with types; integers of few elements, and the second of several inputs, are constants."""
    entries: list[Any] = []
    for i, x in enumerate(inputs):
        if x is None or (way != "inputs alone" and (i == 1 or (x.dtype.kind in "iu" and x.size < 9))):
            entries.append(None if x is None else pt.constant(x, name=f"c{i}"))
        else:
            shape = [size if WAYS[way](axis) else f"s{i}{axis}" for axis, size in enumerate(x.shape)]
            entries.append(pt.variable(f"x{i}", x.dtype.name, shape))
    node = pt.op(case.op, *entries, name="node", n_outputs=case.outputs, opset=version, **attrs)
    return pt.apply_pass(pt.Graph([node], name="one", opsets={"": version}), "InferShape")


def answers(graph: pt.Graph, inputs: Sequence[Any]) -> Iterator[str]:
    """The answers about the node, the last of them about these inputs."""
    node = graph["node"]
    yield str(of_onnxruntime.refused(node, graph) or loses_nan(node, graph, of_onnxruntime.LOSES_NAN, "onnxruntime"))
    given = frozenset(graph.inputs)
    yield str(of_openvino.refused(node, graph, given) or loses_nan(node, graph, of_openvino.LOSES_NAN, "openvino"))
    yield str(known_wrong(node))
    if weight_of_product(node) is not None:
        for precision in ("f16", "bf16", "int8"):
            yield why_not(node, precision, graph.opsets[""]) or f"{bytes_won(node, precision):g}"
    types = [entry.type for entry in (*node.reads, *node.outputs) if entry.name]
    if all(isinstance(kind, pt.TensorType) and kind.is_static for kind in types):
        yield f"{wrong_size(node)}; {count_flops(graph).flops} {labour(node):g}"
    else:
        least = least_sizes(graph)
        yield " ".join(str(list(least[entry])) for entry in node.outputs if entry in least)
    body = decomposed(node, graph.opsets)
    yield "no body" if body is None else text_sum(body)
    try:
        GivenIndices(graph).checked([inputs[int(node.name[1:])] for node in graph.inputs])
    except RunError as error:
        yield str(error)


def is_indexed(op: str) -> bool:
    """True if some input holds indices or the lengths of sequences."""
    return op in ops("indexed") or op in ops("recurrent") or op == "Slice"


def lines(subject: str) -> Iterator[tuple[str, str]]:
    """The name of each variation of a subject, and what is said of it."""
    case = CASES[subject]
    for name, *rest in variations(case):
        inputs = [None if x is None else np.asarray(x) for x in rest[0]]
        for way in WAYS if is_indexed(case.op) else list(WAYS)[:3]:
            try:
                yield f"{name}, {way}", "; ".join(answers(graph_of(case, *rest, way), inputs))
            except Exception as error:  # noqa: BLE001  (nobody asks about nodes that are none)
                yield f"{name}, {way}", type(error).__name__


@cache
def kept() -> dict[str, dict[str, str]]:
    """The lines of the file, by their subjects."""
    listed: dict[str, dict[str, str]] = {}
    for row in KEPT.read_text("utf-8").splitlines():
        subject, name, expected = row.split(" | ", 2)
        listed.setdefault(subject, {})[name] = expected
    return listed


def _worth_keeping() -> Iterator[str]:
    seen = set()
    for subject, case in CASES.items():
        for name, expected in lines(subject):
            if (case.op, expected) not in seen and not expected.isidentifier():
                seen.add((case.op, expected))
                yield f"{subject} | {name} | {expected}\n"


if __name__ == "__main__":
    KEPT.write_text("".join(_worth_keeping()), "utf-8")
