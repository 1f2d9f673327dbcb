"""Caches as an exporter writes them: which slices are the last positions, and which caches a step appends to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.decoder.input_roles import Unfit
from partita.accelerators.decoder.kv_pairs import TO_THE_END, _last, find_caches
from partita.accelerators.decoder.step import StepSizes, step_graph


def integers(*values: int) -> pt.Node:
    return pt.constant(np.array(values))


@pytest.mark.parametrize(
    ("numbers", "last"),
    [
        ((-4, TO_THE_END, 2, 1), (2, 4)),
        ((-1, TO_THE_END + 5, -2, 1), (2, 1)),
        ((-4, TO_THE_END, 2), (2, 4)),
        ((0, TO_THE_END, 2, 1), None),
        ((1, TO_THE_END, 2, 1), None),
        ((-4, TO_THE_END - 1, 2, 1), None),
        ((-4, TO_THE_END, 2, 2), None),
    ],
)
def test_the_last_positions_are_a_slice_from_the_end(numbers: tuple[int, ...], last: tuple[int, int] | None) -> None:
    x = pt.variable("x", "float32", ("B", 2, "P", 8))
    result = _last(pt.op("Slice", x, *map(integers, numbers), name="s")[0])
    assert result == (None if last is None else (x[0], *last))


def test_other_slices_are_not_the_last_positions() -> None:
    x = pt.variable("x", "float32", ("B", 2, "P", 8))
    end = integers(TO_THE_END)
    some = pt.op("Slice", x, integers(-4, -3), integers(TO_THE_END, TO_THE_END), integers(2, 3), name="s")
    computed = pt.op("Slice", x, pt.variable("start", "int64", (1,)), end, integers(2), name="s")
    unknown = pt.op("Slice", pt.variable("y", "float32"), integers(-4), end, integers(-2), name="s")
    assert [_last(node[0]) for node in (x, some, computed, unknown, pt.op("Relu", x))] == [None] * 5


SHAPE = ("B", 2, 16, 8)


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        (("float32", SHAPE), {"axis": 1}, "is not a cache of sequences, heads, positions and depth"),
        (("float32", SHAPE[:3]), {}, "is not a cache of sequences, heads, positions and depth"),
        (("float32", None), {}, "is not a cache of sequences, heads, positions and depth"),
        (("float32", SHAPE), {"room": 15}, "'past' has room for 15 positions, and others for 16"),
        (("float16", SHAPE), {}, "caches of float32 with a known number of heads are appended to"),
        (("float32", ("B", "H", 16, 8)), {}, "caches of float32 with a known number of heads are appended to"),
    ],
)
def test_caches_that_no_step_appends_to(kind: tuple[str, Any], options: dict[str, Any], why: str) -> None:
    cache = SimpleNamespace(**{"past": pt.variable("past", *kind), "axis": 2, "grows": False, "room": 16, **options})
    with pytest.raises(Unfit, match=why):
        step_graph(SimpleNamespace(caches=[cache]), StepSizes(1, 1, 16))  # type: ignore[arg-type]


def test_a_join_of_computed_values_is_no_cache() -> None:
    past, new = pt.variable("past", "float32", SHAPE), pt.variable("new", "float32", ("B", 2, 1, 8))
    computed = pt.op("Concat", pt.op("Relu", past), new, axis=2, name="computed")
    alone = pt.op("Concat", past, axis=2, name="alone")
    joined = pt.op("Concat", past, new, axis=2, name="joined")
    graph = pt.Graph([computed, alone, joined], [past, new])
    assert [(cache.past, cache.output) for cache in find_caches(graph)] == [(past, 2)]
