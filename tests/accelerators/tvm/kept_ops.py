"""Small variations of single ops, the ones whose results `tests/numerics` keeps: the kernels of each on a machine that takes
turns, the formula of an element-wise one, and what a query says without a trial.

`python -m tests.accelerators.tvm.kept_ops` writes the file that `test_kept_ops.py` compares with anew. Of variations of one
attribute that end the same, the first is kept."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import partita as pt
from partita.accelerators.tvm.kernels.language import Kernel, element_named
from partita.accelerators.tvm.kernels.shared.element_access import read, write
from partita.accelerators.tvm.kernels.shared.elementwise import formula, number_of
from partita.accelerators.tvm.query.known_wrong import known_wrong
from partita.accelerators.tvm.query.support import _refusal, _signature, _structure, is_settled
from tests.accelerators.tvm.kept_near import kernels_around
from tests.accelerators.tvm.planned import MACHINES
from tests.numerics.case import Case
from tests.numerics.kept_variations import CASES, variations

KEPT = Path(__file__).with_name("kept_ops.txt")

FAILURES = (pt.PartitaError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of ops that nothing runs."""

EACH = 4
"""Of so many variations one is kept."""

TURNS = ("sse", "avx2", "avx2", "avx512", "amx", "many", "sm_80", "opencl")


def graph_of(case: Case, inputs: Sequence[Any], attrs: Mapping[str, Any], version: int, turn: int) -> pt.Graph:
    """The op as a graph; few integers are constants, and in every other turn all but the first input. In some turns the first
    size is dynamic."""
    entries: list[Any] = []
    for i, x in enumerate(inputs):
        is_constant = x is not None and ((x.dtype.kind in "iu" and x.size < 9) or (i and turn % 2))
        if x is None or is_constant:
            entries.append(None if x is None else pt.constant(x, name=f"c{i}"))
        else:
            entries.append(pt.variable(f"x{i}", x.dtype.name, ["n", *x.shape[1:]] if x.ndim and turn % 5 == 0 else x.shape))
    node = pt.op(case.op, *entries, name="node", n_outputs=case.outputs, opset=version, **attrs)
    graph = pt.Graph(list(node.outputs), name="one", opsets={"": version})
    return pt.apply_pass(graph, "InferShape", strict=False)


def told(graph: pt.Graph, name: str) -> Iterator[str]:
    """The kept form of a graph: reasons of a query, formulas, and the kernels on the machine of this name."""
    machine = MACHINES[name]
    for node in [node for node in graph.nodes if node.is_op]:
        reason = _refusal(node, graph)
        yield f"{reason} {known_wrong(node)} {is_settled(node, graph)}"
        if reason is None:
            yield f"{_signature(node, graph)} {_structure(node, graph, machine)}"
        compute = formula(node, graph.opset)
        if compute is not None and all(entry.type.is_static for entry in (*node.reads, node[0])):  # type: ignore[union-attr]
            yield _written(node, compute)
    yield from kernels_around(graph, name, has_rules=False)


def _written(node: pt.Node, compute: Any) -> str:
    """The formula as code."""
    kernel = Kernel("formula")
    entries = list(dict.fromkeys(node.reads))
    buffers = [kernel.input(f"x{i}", element_named(str(entry.type.dtype)), (8,)) for i, entry in enumerate(entries)]  # type: ignore[union-attr]
    out = kernel.output("out", element_named(str(node[0].type.dtype)), (8,))  # type: ignore[union-attr]
    with kernel.loop(8, "i") as i:
        write(out, (i,), number_of(node, compute, {entry: read(buffer, (i,)) for entry, buffer in zip(entries, buffers)}))
    return str(kernel)


def lines(subject: str) -> Iterator[tuple[str, str]]:
    """The name of each variation of a subject, with the machine, and what is kept of it."""
    case = CASES[subject]
    for name, inputs, attrs, version in variations(case):
        turn = zlib.crc32(f"{subject} {name}".encode())
        if turn % EACH:
            continue
        turn //= EACH
        machine = TURNS[turn % len(TURNS)]
        try:
            listed = list(told(graph_of(case, inputs, attrs, version, turn // 8), machine))
        except FAILURES as error:
            yield f"{name} | {machine}", type(error).__name__
            continue
        last = listed[-1].rpartition(" ")[0] if listed else "nothing"
        yield f"{name} | {machine}", f"{last} {zlib.crc32(str(listed).encode()):08x}"


@cache
def kept() -> dict[str, dict[str, str]]:
    """The lines of the file, by their subjects."""
    listed: dict[str, dict[str, str]] = {}
    for line in KEPT.read_text("utf-8").splitlines():
        subject, name, machine, expected = line.split(" | ")
        listed.setdefault(subject, {})[f"{name} | {machine}"] = expected
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
