"""The garbage collector around bulk construction."""

from __future__ import annotations

import gc

import pytest

from partita.graph import gc_pause
from partita.graph.gc_pause import collector_paused


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the collector's functions that are called, in order; nobody has asked it anything before."""
    names: list[str] = []
    monkeypatch.setattr(gc_pause, "_ageing", gc_pause._Ageing())
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: names.append(name))
    return names


def test_what_was_made_counts_as_old(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    for _ in range(2):
        with collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled()
    assert calls == ["freeze", "unfreeze"] * 2


def test_what_a_program_froze_stays_frozen_and_is_counted_once(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """To count it takes a hundredth of a second for a million objects, and each graph would."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: calls.append("count") or 7)
    for _ in range(3):
        with collector_paused():
            pass
    assert calls == ["count"]
