"""Times of boxes on the page: what several runs of one box took together."""

from __future__ import annotations

from types import SimpleNamespace

from partita.page.times import _add_time


def test_times_of_a_box_add_up() -> None:
    items = [SimpleNamespace(us=-1.0), SimpleNamespace(us=-1.0)]
    for us in (2.0, 3.5, 0.25):
        _add_time(items, 1, us)  # type: ignore[arg-type]
    assert [item.us for item in items] == [-1.0, 5.75]
