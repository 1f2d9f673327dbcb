"""`largest` against `seed` on whole models, with parts of them on another device."""

from __future__ import annotations

import random

import pytest

from partita.graph import Graph
from partita.graph.readers.zoo import load_zoo, zoo_names
from partita.partition import plan
from partita.passes import apply_pass

PATTERNS = {
    "every second op": lambda i, rng: i % 2 == 0,
    "every third op": lambda i, rng: i % 3 == 0,
    "every seventh op": lambda i, rng: i % 7 == 0,
    "one op in five": lambda i, rng: rng.random() < 0.2,
}
"""Which ops are elsewhere, by the op's number."""

QUICK = ("squeezenet", "shufflenet", "resnet50")


def placed(name: str, pattern: str) -> Graph:
    graph = apply_pass(load_zoo(name), "Default")
    rng = random.Random(name)
    for i, node in enumerate(node for node in graph.nodes if node.is_op):
        node.affinity = "b" if PATTERNS[pattern](i, rng) else "a"
    return graph


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in zoo_names()]
)
@pytest.mark.thinned(2)
def test_largest_needs_no_more_groups_than_seed_and_a_tenth(name: str, pattern: str) -> None:
    graph = placed(name, pattern)
    ours, seeds = (len(plan(graph, growth=growth).groups) for growth in ("largest", "seed"))
    assert ours <= max(seeds + 1, seeds * 1.1)
