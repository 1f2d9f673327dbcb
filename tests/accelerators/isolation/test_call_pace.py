"""Calls leave time to background work if they keep the cores busy and follow each other at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from partita.accelerators.process import background


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The time of the wall, that of the processor on two cores, and the pauses."""
    now = SimpleNamespace(wall=0.0, used=0.0, pauses=[])

    def sleep(seconds: float) -> None:
        now.pauses.append(seconds)
        now.wall += seconds

    fake = SimpleNamespace(perf_counter=lambda: now.wall, process_time=lambda: now.used, sleep=sleep)
    monkeypatch.setattr(background, "time", fake)
    monkeypatch.setattr(background, "usable_cores", lambda: 2)
    monkeypatch.setattr(background, "STRETCH", 1.5)
    return now


def call(pace: background.CallPace, clock: SimpleNamespace, *, after: float, takes: float, cores: float = 2.0) -> float:
    """The pause at the end of a call."""
    clock.wall += after
    start, before = pace.start(), len(clock.pauses)
    clock.wall += takes
    clock.used += takes * cores
    pace.end(start)
    return sum(clock.pauses[before:])


def test_calls_in_a_row_are_stretched_to_one_length(clock) -> None:
    pace = background.CallPace()
    assert call(pace, clock, after=1.0, takes=0.04) == 0.0  # nobody called before
    pauses = [call(pace, clock, after=0.001, takes=seconds) for seconds in (0.04, 0.05, 0.07, 0.02)]
    assert pauses == pytest.approx([0.019, 0.009, 0.0, 0.009])


@pytest.mark.parametrize(("after", "takes", "cores"), [(0.03, 0.04, 2.0), (0.0, 0.04, 0.9), (0.0, 0.0003, 2.0)])
def test_who_is_not_delayed(clock, after: float, takes: float, cores: float) -> None:
    """A caller who comes back later, a call that leaves a core free, a call too short for a pause."""
    pace = background.CallPace()
    assert [call(pace, clock, after=after or 1e-6, takes=takes, cores=cores) for _ in range(3)][1:] == [0.0, 0.0]
