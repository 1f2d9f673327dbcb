"""Decoders of which one node is another: what a session recognizes of each.

`python -m tests.accelerators.sessions.kept_decoders` writes the file that `test_kept_decoders.py` compares with. Of variations
that end the same, the first is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import partita as pt
from benchmarks.models.exports import SMALL, SMALL_LLAMA, gpt2, llama
from partita.accelerators.decoder.input_roles import Unfit, roles_of
from partita.accelerators.decoder.kv_pairs import find_caches
from partita.accelerators.decoder.step import StepSizes, step_graph
from partita.accelerators.decoder.tokens import token_axes
from partita.graph.errors import PartitaError
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from tests.graphs.kept_graphs import text_sum

KEPT = Path(__file__).with_name("kept_decoders.txt")

DECODERS: dict[str, Callable[[], pt.Graph]] = {
    "gpt2": lambda: gpt2(attrs.evolve(SMALL, layers=1, style="ops", position_ids=False)),
    "gpt2, Attention": lambda: gpt2(attrs.evolve(SMALL, layers=1, style="op", position_ids=True)),
    "llama": lambda: llama(attrs.evolve(SMALL_LLAMA, layers=1, style="ops", position_ids=True)),
    "llama, Attention": lambda: llama(attrs.evolve(SMALL_LLAMA, layers=1, style="op", position_ids=False)),
}

PARTS = 12
"""The number of tests of each decoder: each has every so many nodes."""


@cache
def decoder(name: str) -> pt.Graph:
    return DECODERS[name]()


Change = Callable[[Node, Rewriter], Any]


def changes(node: Node) -> Iterator[tuple[str, Change]]:
    """Small changes of a node, each with its name."""
    value = node.value
    if value is not None:
        if value.size and value.size < 9 and value.dtype.kind in "if":
            for step in (-1, 1):
                other = (value + np.asarray(step, value.dtype)).astype(value.dtype)
                yield f"{step:+}", lambda node, rewriter, other=other: rewriter.keep(node, node.evolve(value=other))
        return
    if not node.is_op:
        return
    for key, old in node.attrs.items():
        others = [old - 1, old + 1] if isinstance(old, int) else [old[::-1]] if isinstance(old, (list, tuple)) else []
        for new in others:
            attributes = {**node.attrs, key: new}
            yield (
                f"{key} = {new}",
                lambda node, rewriter, attributes=attributes: rewriter.keep(node, rewriter.rebuilt(node, attrs=attributes)),
            )
    for other in OTHERS.get(str(node.op), ()):
        yield other, lambda node, rewriter, other=other: rewriter.keep(node, rewriter.rebuilt(node, op=other))
    if node.inputs and node.inputs[0] is not None and node.inputs[0].node.value is None:
        yield "left out", lambda node, rewriter: rewriter.replace(node[0], rewriter.value(node.inputs[0]))
    if len(node.inputs) > 1:
        yield "turned", lambda node, rewriter: rewriter.keep(node, _turned(rewriter.rebuilt(node)))


OTHERS = {
    "Add": ("Sub",), "Sub": ("Add",), "Mul": ("Div",), "Div": ("Mul",), "Softmax": ("LogSoftmax",), "LessOrEqual": ("Less",),
    "Greater": ("GreaterOrEqual",), "Less": ("LessOrEqual",), "Cos": ("Sin",), "Sin": ("Cos",), "And": ("Or",),
    "Equal": ("Less",),
}
"""Ops in place of others."""


def _turned(node: Node) -> Node:
    return node.evolve(inputs=(node.inputs[1], node.inputs[0], *node.inputs[2:]))


def varied(graph: pt.Graph, name: str, change: Change) -> pt.Graph:
    """The graph with one node changed, and types that follow from its inputs."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        if node.name == name:
            change(node, rewriter)
        elif node.is_op:
            rewriter.keep(node, rewriter.rebuilt(node, output_types=(None,) * len(node.output_names)))
        else:
            rewriter.keep(node)

    return pt.apply_pass(rewrite(graph, visit), "InferShape")


def recognized(graph: pt.Graph) -> str:
    """The roles of a decoder's inputs, the axes of tokens, and a sum over the step's text."""
    caches = find_caches(graph)
    roles = roles_of(graph, caches)
    said = [f"{node.name} {role}" for node, role in roles.filled.items()]
    said += [f"{node.name} asked for" for node in roles.asked]
    said += [f"{cache.past.name} {cache.axis} {cache.room} {cache.keeps}" for cache in caches]
    said += [str(token_axes(roles)), str(sorted(roles.symbols.items())), str(sorted(roles.fixed.items()))]
    try:
        step = text_sum(step_graph(roles, StepSizes(1, 2, 40)))
    except PartitaError as error:
        step = error.cause
    return f"{'; '.join(said)}; {step}"


def lines(subject: str, parts: Sequence[int]) -> Iterator[tuple[str, str]]:
    """The name of each variation of these parts of a decoder, and what is recognized."""
    graph = decoder(subject)
    for node in [node for number, node in enumerate(graph.nodes) if number % PARTS in parts]:
        for name, change in changes(node):
            try:
                yield f"{node.name} ({node.op}) {name}", recognized(varied(graph, node.name, change))
            except PartitaError as error:
                yield f"{node.name} ({node.op}) {name}", error.cause if isinstance(error, Unfit) else type(error).__name__


@cache
def kept() -> dict[str, dict[str, str]]:
    """The lines of the file, by their decoders."""
    listed: dict[str, dict[str, str]] = {}
    for row in KEPT.read_text("utf-8").splitlines():
        subject, name, expected = row.split(" | ", 2)
        listed.setdefault(subject, {})[name] = expected
    return listed


def _worth_keeping() -> Iterator[str]:
    for subject in DECODERS:
        seen = set()
        for name, expected in lines(subject, range(PARTS)):
            if expected not in seen:
                seen.add(expected)
                yield f"{subject} | {name} | {expected}\n"


if __name__ == "__main__":
    KEPT.write_text("".join(_worth_keeping()), "utf-8")
