"""Sections of long lists of boxes: their ends, names, owners and times, and the boxes that are open at first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from partita.page import boxes, sections
from partita.page.scene import NOWHERE, Item
from partita.page.sections import LONGEST, SHORTEST, open_some, positions


def ops(*names: str, parent: int = NOWHERE) -> list[Item]:
    return [Item("op", name, "Relu", parent) for name in names]


def chain(count: int) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(count - 1)]


@pytest.mark.parametrize(
    ("count", "edges", "cut"),
    [
        (LONGEST, chain(LONGEST), [(0, 60)]),
        (LONGEST + 1, chain(LONGEST + 1), [(0, 37), (37, 61)]),
        (120, chain(120), [(0, 60), (60, 120)]),
        (130, chain(130), [(0, 60), (60, 106), (106, 130)]),
        (100, [*chain(40), *((i + 40, j + 40) for i, j in chain(60))], [(0, 40), (40, 100)]),
        (100, [*chain(100), *((i, i + 20) for i in range(80) if i + 20 != 51 and i != 50)], None),
    ],
)
def test_sections_end_where_few_values_cross(
    count: int, edges: Sequence[tuple[int, int]], cut: list[tuple[int, int]] | None
) -> None:
    stretches = sections._stretches(count, edges)
    assert [start for start, _ in stretches[1:]] == [stop for _, stop in stretches[:-1]]
    assert (stretches[0][0], stretches[-1][1]) == (0, count)
    assert all(SHORTEST <= stop - start <= LONGEST for start, stop in stretches)
    assert cut is None or stretches == cut
    for _, stop in stretches[:1]:
        crossing = [sum(u < at <= v for u, v in edges) for at in range(SHORTEST, min(LONGEST, count - SHORTEST) + 1)]
        assert count <= LONGEST or crossing[stop - SHORTEST] == min(crossing)


@pytest.mark.parametrize(
    ("scopes", "section", "start", "name"),
    [
        (["a", "a", "a"], [0, 1, 2], 0, "a"),
        (["a", "b", "c"], [0, 1, 2], 0, "a … c"),
        (["", "b", ""], [0, 1, 2], 0, "b"),
        (["", "b", "b", ""], [0, 1], 0, "b"),
        (["", "", ""], [0, 1, 2], 0, "1–3"),
        (["x", "", ""], [1, 2], 60, "61–62"),
    ],
)
def test_names_of_sections(scopes: list[str], section: list[int], start: int, name: str) -> None:
    assert sections._name(scopes, section, start) == name


def test_scopes_of_boxes_are_those_of_their_first_op() -> None:
    items = [
        Item("input", "a/b", "", NOWHERE), Item("call", "c", "", NOWHERE), Item("body", "d", "", 1),
        *ops("/layer/0/relu", "other/relu", parent=2), *ops("model.norm.scale", "plain", "/root"),
    ]
    assert sections._scopes(items) == ["", "layer/0", "layer/0", "layer/0", "other", "model.norm", "", ""]


def test_owners_and_times_of_sections() -> None:
    items = [
        Item("input", "x", "", NOWHERE), Item("op", "a", "", NOWHERE, owner="cpu", us=2.0),
        Item("op", "b", "", NOWHERE, owner="cpu"), Item("op", "c", "", NOWHERE, owner="cuda", us=0.0),
        Item("output", "y", "", NOWHERE),
    ]
    assert [sections._owner(items, section) for section in ([0, 1, 2, 4], [1, 3], [0, 4])] == ["cpu", "", ""]
    assert [sections._time(items, section) for section in ([0, 1, 2], [1, 3], [3], [0, 2])] == [2.0, 2.0, 0.0, -1]


def test_the_member_that_contains_a_box() -> None:
    items = [
        *ops("a"), Item("call", "b", "", NOWHERE), Item("body", "c", "", 1), *ops("d", parent=2), *ops("e"),
    ]
    assert positions(items, NOWHERE, [1, 0]) == [1, 0, 0, 0, NOWHERE]
    assert positions(items, 1, [2]) == [NOWHERE, NOWHERE, 0, 0, NOWHERE]


def test_a_topological_order_takes_the_lowest_first_and_cycles_last() -> None:
    assert sections._topological(5, [(3, 0), (0, 4), (4, 1)]) == [2, 3, 0, 4, 1]
    assert sections._topological(4, [(1, 2), (2, 1), (-1, 0), (0, -1), (3, 3)]) == [0, 3, 1, 2]


@pytest.mark.parametrize(
    ("outer", "inner", "is_open"),
    [(5, 1000, True), (6, 54, True), (6, 55, False), (30, 30, True), (30, 31, False)],
)
def test_boxes_are_open_while_a_level_fits_the_screen(outer: int, inner: int, is_open: bool) -> None:
    """Five boxes say nothing: what is in them is shown however much it is."""
    items = [Item("call", "c", "", NOWHERE), *ops(*(f"o{i}" for i in range(outer - 1)))]
    items += ops(*(f"i{i}" for i in range(inner)), parent=0)
    open_some(items)
    assert [item.is_open for item in items] == [is_open, *[False] * (outer + inner - 1)]


def test_kernels_stay_closed() -> None:
    items = [Item("kernel", "k", "", NOWHERE), *ops("a", "b", parent=0)]
    open_some(items)
    assert not any(item.is_open for item in items)


def test_long_lists_are_cut() -> None:
    numbers = ", ".join(map(str, range(16)))
    assert boxes._attribute(list(range(16))) == f"[{numbers}]"
    assert boxes._attribute(list(range(17))) == f"[{numbers}, …] 17 in all"
    assert boxes._attribute(np.zeros((2, 3), np.float32)) == "float32[2, 3]"
