"""The end of the interpreter waits for what is inside a device, and no longer than it has to."""

from __future__ import annotations

import threading
import time

import pytest

from partita.accelerators.process import exit_barrier
from partita.accelerators.process.exit_barrier import Door
from partita.accelerators.runtime.requests import RequestQueue


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    happened: list[str] = []
    monkeypatch.setattr(exit_barrier, "_last", [lambda: happened.append("closed")])
    return happened


@pytest.mark.parametrize("own", [0, 2])
def test_nobody_else_inside_is_not_waited_for(events: list[str], monkeypatch: pytest.MonkeyPatch, own: int) -> None:
    monkeypatch.setattr(exit_barrier, "PATIENCE", 5.0)
    door, begun = Door(), time.monotonic()
    for _ in range(own):
        door.enter()
    door.close()
    assert events == ["closed"] and time.monotonic() - begun < 4


@pytest.mark.parametrize("leaves", [True, False])
def test_others_inside_are_waited_for_as_long_as_patience_lasts(
    events: list[str], monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    monkeypatch.setattr(exit_barrier, "PATIENCE", 30.0 if leaves else 0.05)
    door, inside, end = Door(), threading.Event(), threading.Event()

    def work() -> None:
        door.enter()
        inside.set()
        end.wait(0.1 if leaves else 30)
        events.append("left")
        door.leave()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    begun = time.monotonic()
    door.close()
    assert time.monotonic() - begun < 20
    end.set()
    thread.join()
    assert events == (["left", "closed"] if leaves else ["closed", "left"])


def test_what_a_request_held_goes_before_its_thread_leaves_the_device() -> None:
    """A call may hold the last reference to its model, whose end is inside an engine's library."""
    ended: list[int] = []
    over = threading.Event()

    class Model:
        def __call__(self) -> None:
            pass

        def __del__(self) -> None:
            ended.append(exit_barrier.door.inside.count(threading.get_ident()))
            over.set()

    RequestQueue(1, 1).submit(Model()).result()
    assert over.wait(60) and ended == [1]
