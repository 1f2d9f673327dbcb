"""Places for work: as many as cores and memory allow, in the order in which it came."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from partita.accelerators.process import compile_slots, cores
from partita.accelerators.process.compile_slots import GivenUp, Places, SlotSeeker
from tests.waiting import until


class Job:
    """Work that lasts until the test ends it."""

    def __init__(self, queue: Places, needed: int = 0) -> None:
        self.worker, self._done = SlotSeeker(), threading.Event()
        self.inside = self.was_given_up = False
        self._thread = threading.Thread(target=self._work, args=(queue, needed))
        self._thread.start()

    def _work(self, queue: Places, needed: int) -> None:
        try:
            with queue.place(self.worker, needed):
                self.inside = True
                assert self._done.wait(300)
        except GivenUp:
            self.was_given_up = True

    def end(self) -> None:
        self._done.set()
        self._thread.join()
        self.inside = False


@contextlib.contextmanager
def at_work(queue: Places, *needed: int):
    """Jobs that come one after another."""
    jobs = []
    try:
        for each in needed:
            jobs.append(Job(queue, each))
            assert until(lambda: jobs[-1].worker in (*queue._inside, *queue._waiting))
        yield jobs
    finally:
        for job in jobs:
            job.end()


@pytest.fixture(autouse=True)
def told(monkeypatch) -> None:
    """Whoever waits hears of each place: looking again and again is for memory alone."""
    monkeypatch.setattr(compile_slots, "LOOK", 1e6)


def inside(jobs: list[Job]) -> list[bool]:
    return [job.inside for job in jobs]


def test_as_many_as_there_are_places_in_order() -> None:
    queue = Places(lambda: 2, lambda: None)
    with at_work(queue, 0, 0, 0, 0) as jobs:
        assert until(lambda: inside(jobs) == [True, True, False, False])
        jobs[1].end()
        assert until(lambda: inside(jobs) == [True, False, True, False]) and queue.is_wanted
        jobs[0].end()
        assert until(lambda: inside(jobs) == [False, False, True, True]) and not queue.is_wanted


def test_one_has_a_place_however_little_memory_is_left(monkeypatch) -> None:
    monkeypatch.setattr(compile_slots, "LOOK", 0.01)
    left = [10]
    queue = Places(lambda: 4, lambda: left[0])
    with at_work(queue, 100, 20, 5) as jobs:
        assert until(lambda: jobs[0].inside)
        assert inside(jobs) == [True, False, False]
        left[0] = 30  # others gave it back, and nobody says so
        assert until(lambda: inside(jobs) == [True, True, True])


def test_who_is_given_up_leaves_the_queue() -> None:
    queue = Places(lambda: 1, lambda: None)
    with at_work(queue, 0, 0, 0) as jobs:
        jobs[1].worker.give_up()
        assert until(lambda: jobs[1].was_given_up)
        jobs[0].end()
        assert until(lambda: jobs[2].inside)
    assert not queue._inside and not queue._waiting


def test_the_first_of_the_queue_is_given_up_before_it_knows_of_its_place() -> None:
    queue = Places(lambda: 1, lambda: None)
    worker = SlotSeeker()
    worker.give_up()
    with pytest.raises(GivenUp), queue.place(worker, 0):
        pass
    assert not queue._inside and not queue._waiting


def test_an_error_gives_the_place_back() -> None:
    queue = Places(lambda: 1, lambda: None)
    with pytest.raises(KeyboardInterrupt), queue.place(SlotSeeker(), 0):
        raise KeyboardInterrupt
    assert not queue._inside


def test_a_forked_process_finds_all_places_free() -> None:
    queue = Places(lambda: 1, lambda: None)
    with at_work(queue, 0, 0) as jobs:
        assert until(lambda: jobs[0].inside)
        child = os.fork()
        if child == 0:
            with queue.place(SlotSeeker(), 0):
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.fixture
def machine(tmp_path: Path, monkeypatch) -> Path:
    """A machine with 3 MiB left, in whose groups the process is in `a/b`."""
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:       3072 kB\n")
    (tmp_path / "own").write_text("0::/a/b\n")
    (tmp_path / "groups" / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(compile_slots, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(cores, "_OWN", tmp_path / "own")
    monkeypatch.setattr(cores, "_ROOT", tmp_path / "groups")
    return tmp_path


def limit(folder: Path, most: str, used: int, files: int) -> None:
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {files}\n")


def test_the_memory_that_is_left(machine: Path) -> None:
    assert compile_slots.free_memory() == 3 << 20
    limit(machine / "groups" / "a" / "b", "max", 5000, 0)
    assert compile_slots.free_memory() == 3 << 20
    limit(machine / "groups" / "a", "9000", 5000, 1000)
    assert compile_slots.free_memory() == 5000
    limit(machine / "groups" / "a", "4000", 5000, 0)
    assert compile_slots.free_memory() == 0


def test_a_system_that_does_not_say(machine: Path) -> None:
    (machine / "meminfo").unlink()
    assert compile_slots.free_memory() is None
