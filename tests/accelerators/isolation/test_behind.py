"""Work behind calls, on a thread of low priority."""

from __future__ import annotations

import os
import sys
import threading
from contextvars import ContextVar

import pytest

from partita.accelerators.process.background import behind, lowered

_word: ContextVar[str] = ContextVar("word", default="")


def test_it_returns_what_the_work_returns() -> None:
    assert behind(lambda: 7) == 7


def test_it_raises_what_the_work_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        behind(lambda: 1 // 0)


def test_the_work_sees_the_context() -> None:
    token = _word.set("here")
    try:
        assert behind(_word.get) == "here"
    finally:
        _word.reset(token)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere threads have no priorities of their own")
def test_the_work_gives_way_and_who_waits_does_not() -> None:
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert behind(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())) == lowered()
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="the system has no priorities")
def test_the_work_is_ten_below_the_calls_and_at_most_at_the_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    for calls, work in ((-20, -10), (0, 10), (5, 15), (9, 19), (10, 19), (19, 19)):
        monkeypatch.setattr(os, "getpriority", lambda which, who, calls=calls: calls)
        assert lowered() == work
