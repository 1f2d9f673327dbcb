"""Random graphs on random accelerators with others behind them: the numbers are the reference's, and every reason is true."""

from __future__ import annotations

import contextlib
import random
import re

import numpy as np
import pytest

import partita as pt
from partita.accelerators import register_accelerator, unregister_accelerator
from partita.accelerators.interface.registry import accelerator
from tests.accelerators.hetero.random_accelerators import MERGED, RandomAccelerator, random_graph
from tests.accelerators.hetero.small_devices import device
from tests.close import assert_close

SIZE = re.compile(r"it was in a subgraph of (\d+) ops?, (fewer than min|beyond max)_subgraph(?:_size|s)=(\d+)")


@contextlib.contextmanager
def drawn(seed: int):
    """A registered accelerator of this seed."""
    register_accelerator(type("Drawn", (RandomAccelerator,), {"__init__": lambda self: RandomAccelerator.__init__(self, seed)}))
    try:
        yield accelerator("that")
    finally:
        unregister_accelerator("that")


def check(seed: int, second: str) -> None:
    """One graph on one accelerator, then on a second device, then on the reference."""
    draw = random.Random(seed)
    g = random_graph(draw)
    x = np.array([draw.uniform(-2, 2) for _ in range(4)], np.float32)
    wanted = pt.compile(g, "reference")(x)
    lacks = frozenset(draw.sample(("Tanh", "Neg", "Mul", "HardSwish", "Max"), 2))
    behind = device("behind", supports=lambda self, node, graph: node.op not in lacks or f"behind has no {node.op}")
    with drawn(seed) as that, behind:
        check_answers(that, flat(g))
        m = pt.compile(g, f"HETERO:that,{second},reference")
        for mine, true in zip(m(x), wanted, strict=True):
            assert_close(mine, true, rtol=1e-4)
        check_reasons(that, m)


def flat(g: pt.Graph) -> pt.Graph:
    return pt.apply_pass(g, "InlineSubgraphs")


def check_answers(that: RandomAccelerator, g: pt.Graph) -> None:
    """What the query answers is what the accelerator knows of each node that stays something."""
    answers = that.query(g)
    transformed = that.transform(g)
    refused = {name for node in transformed.nodes if node.is_op and that.supports(node, transformed) is not True
               for name in that.origins[node.name]}
    for name, answer in answers.items():
        if name in refused:
            assert answer is not True, f"{name} was refused, and counts as supported"
        elif name not in that.removed and answer is not True:
            untold = "leaves nothing of it" in answer or "next to it without naming its origin" in answer
            assert that.hides and untold, (name, answer)


def check_reasons(that: RandomAccelerator, m: pt.CompiledModel) -> None:
    placement, own = m.report.placement, that.own
    for name in placement:
        reason = placement.refusals(name).get("that")
        if reason is None:
            continue
        if "gave it back" in reason:
            result = reason.removeprefix("its property 'own' gave it back: ")
            size = SIZE.fullmatch(result)
            if size is not None:
                small = size[2] == "fewer than min"
                assert int(size[3]) == (own.min_subgraph_size if small else own.max_subgraphs)
                assert not small or int(size[1]) < own.min_subgraph_size
            elif result.startswith("review_subgraph"):
                assert name in own.reviewed
            else:
                assert result == "create_subgraph_node returned None for its subgraph" and name in own.uncreated
        elif "leaves nothing of it" in reason:
            assert that.hides
        elif "its body holds" in reason:
            assert placement.graph[name].is_call or "leaves it out" in reason
        else:
            kind = re.search(r"that has no (\w+)$", reason)
            assert kind is not None and kind[1] in that.refused, reason
            ops = {placement.graph[name].op, *(["HardSigmoid", "Mul"] if placement.graph[name].op == "HardSwish" else [])}
            ops |= {MERGED} if placement.graph[name].op in ("Add", "Relu") else set()
            goes_along = "leaves it out" in reason or "of it: that has" in reason  # with its reader, or with what makes its value
            beside = "next to it without naming its origin" in reason and that.hides
            removed = that.removes and placement.graph[name].op == "Identity"
            assert kind[1] in ops or beside or (removed and goes_along), (name, reason)
    for note in m.report.notes:
        moved = re.match(r"\d+ ops? \(.*\) with \d+% of the FLOPs moved to \w+: that could not compile", note) and that.hides
        assert moved or note.startswith(("inlined: no device takes", "kept whole: the call", "moved from that to")), note


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_accelerators(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed, "behind")


@pytest.mark.slow  # minutes: every fiftieth is compiled by TVM
def test_three_thousand_random_accelerators() -> None:
    pytest.importorskip("tvm")
    for seed in range(3000):
        check(seed, "cpu" if seed % 50 == 0 else "behind")
