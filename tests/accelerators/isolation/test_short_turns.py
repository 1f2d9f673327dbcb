"""Short turns of Python's lock while threads work behind calls."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from partita.accelerators.process.background import TURN, behind, short_turns

USUAL = 0.005


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """The interval that Python starts with, and the one that was there before behind the test."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL)
    yield
    sys.setswitchinterval(before)


def test_work_behind_calls_takes_short_turns() -> None:
    for leaves_threads in (False, True):
        assert behind(sys.getswitchinterval, leaves_threads=leaves_threads) == pytest.approx(TURN)
        assert sys.getswitchinterval() == pytest.approx(USUAL)


def test_work_that_fails_leaves_turns_as_they_were() -> None:
    with pytest.raises(ZeroDivisionError):
        behind(lambda: 1 // 0)
    assert sys.getswitchinterval() == pytest.approx(USUAL)


def test_turns_stay_short_until_the_last_of_several_works_ends() -> None:
    is_at_work, may_end = threading.Event(), threading.Event()

    def work() -> None:
        is_at_work.set()
        may_end.wait()

    other = threading.Thread(target=behind, args=[work])
    other.start()
    is_at_work.wait()
    behind(lambda: behind(int))
    assert sys.getswitchinterval() == pytest.approx(TURN)
    may_end.set()
    other.join()
    assert sys.getswitchinterval() == pytest.approx(USUAL)


def test_turns_that_are_shorter_or_set_meanwhile_stay() -> None:
    sys.setswitchinterval(TURN / 2)
    assert behind(sys.getswitchinterval) == sys.getswitchinterval() == pytest.approx(TURN / 2)
    behind(lambda: sys.setswitchinterval(0.001))
    assert sys.getswitchinterval() == pytest.approx(0.001)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_process_has_usual_turns() -> None:
    with short_turns:
        child = os.fork()
        if not child:
            are_usual = abs(sys.getswitchinterval() - USUAL) < TURN
            with short_turns:
                are_short = abs(sys.getswitchinterval() - TURN) < TURN / 10
            os._exit(0 if are_usual and are_short else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sys.getswitchinterval() == pytest.approx(USUAL)
