"""The process that compiles behind calls: it gives way to them, and leaves them a core."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from partita.accelerators.interface.isolation import background_worker
from partita.accelerators.interface.isolation.background_worker import Workshop
from partita.accelerators.interface.isolation.process import ClassOrigin, DeviceChild, Limit, origin_of
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.process.background import lowered
from partita.accelerators.process.compile_slots import Places, SlotSeeker
from partita.accelerators.process.cores import all_but_one_core, default_threads
from tests.waiting import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere no process is kept off a core")


@pytest.fixture
def child() -> Iterator[DeviceChild]:
    cpu = accelerator("cpu")
    workshop = Workshop(origin_of("cpu", type(cpu)), Limit(300.0))
    child = workshop.new_child()
    yield child
    child.kill()


def test_it_leaves_a_core_to_the_calls_and_has_a_lower_priority(child: DeviceChild) -> None:
    allowed = all_but_one_core() or os.sched_getaffinity(0)
    assert os.sched_getaffinity(child.number) == allowed
    assert os.getpriority(os.PRIO_PROCESS, child.number) == lowered()


def test_its_kernels_are_for_all_threads_of_the_calls(child: DeviceChild) -> None:
    variables = Path(f"/proc/{child.number}/environ")
    assert until(lambda: bool(variables.read_bytes()), 30.0), "a program that has only just begun shows none yet"
    assert f"TVM_NUM_THREADS={default_threads()}".encode() in variables.read_bytes().split(b"\0")


def test_it_starts_before_it_is_needed_unless_others_compile(monkeypatch) -> None:
    workshop, told = Workshop(ClassOrigin("fake", "", "", ""), Limit(300.0)), []
    fake = SimpleNamespace(is_alive=True, kill=lambda: None, end=lambda: told.append("ended"), forget=lambda: None)
    monkeypatch.setattr(Workshop, "new_child", lambda self: told.append("new") or fake)
    monkeypatch.setattr(Workshop, "prepare", lambda self, child: told.append("prepared"))
    monkeypatch.setattr(background_worker, "places", Places(lambda: 1, lambda: None))
    with background_worker.places.place(SlotSeeker(), 0):
        workshop.begin()
        assert told == []
    workshop.begin()
    workshop.begin()
    assert told == ["new"]
    for _ in range(2):
        with workshop.child() as child:
            assert child is fake and told == ["new", "prepared"]
    workshop.close()
    assert told == ["new", "prepared", "ended"]
