"""A random model from a seed."""

from __future__ import annotations

import random

from partita.graph.errors import GraphError
from tests.fuzz.models import control, elementwise, layers, moves, quantized  # noqa: F401  (they register their recipes)
from tests.fuzz.models.builder import Builder, Case, Skip, with_symbols
from tests.fuzz.models.recipes import RECIPES
from tests.fuzz.models.stability import run

OPSETS = (9, 11, 12, 13, 13, 15, 17, 18, 19, 20, 21, 21, 21, 22, 23, 24, 25)
"""The versions of ONNX that models say; those up to what onnxruntime and openvino know."""

NEWEST = (26, 27, 28)
"""Versions for ops that older ones lack."""


def generate(seed: int, refused: list[str] | None = None) -> Case:
    """The model of a seed: one op to eight, each op of ONNX as likely as any other.

    What the reference does not take is written to `refused`: an op, which another one replaces, or a whole model that is computed
    node by node but not as a graph, which is drawn again."""
    refused = [] if refused is None else refused
    rng = random.Random(seed)
    while True:
        case = _drawn(rng, refused)
        try:
            run(case.graph, case.feeds, None)
        except GraphError as error:
            refused.append(f"model: {error}")
        else:
            return case


def _drawn(rng: random.Random, refused: list[str]) -> Case:
    opset = rng.choice(NEWEST if rng.random() < 0.05 else OPSETS)
    b = Builder(rng, opset, specials=rng.random() < 0.25)
    wanted = rng.choice((1, 1, 2, 2, 3, 4, 6, 8))
    names = sorted(RECIPES)
    while len(b.ops) < wanted:
        name = rng.choice(names)
        before = len(b.ops)
        try:
            RECIPES[name](b, name)
        except Skip:
            b.forget(before)
        except GraphError as error:
            b.forget(before)
            refused.append(f"{name}-{opset}: {error}")
    case = b.case()
    return with_symbols(case, rng) if rng.random() < 0.25 else case
