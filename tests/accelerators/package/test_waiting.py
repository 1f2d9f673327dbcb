"""Waiting for the lock of another process: it is named, a killed one holds nothing, and a stopped one is soon given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import partita as pt
from partita.accelerators.store import list_entries, waiting
from partita.accelerators.store.store import LOCKS, Store
from tests.accelerators.package.models import ROOT, run
from tests.close import assert_close
from tests.graphs.networks import inputs_of, small_net

Holder = subprocess.Popen[str]

HOLD = """
import contextlib, sys, time
from pathlib import Path
from partita.accelerators.store.store import LOCKS, Store
store = Store(Path(sys.argv[1]))
with contextlib.ExitStack() as held:
    for i in range(LOCKS):
        held.enter_context(store.locked(f"{i:08x}"))
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.fixture
def holder(folder: Path) -> Iterator[Holder]:
    """Another process that holds all locks of the folder, until its input ends."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "holds\n"
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What takes seconds takes hundredths."""
    monkeypatch.setattr(waiting, "TOLD", 0.02)
    monkeypatch.setattr(waiting, "LOOK", 0.02)
    return monkeypatch


def test_whoever_is_waited_for_is_named(folder: Path, holder: Holder, in_haste: pytest.MonkeyPatch) -> None:
    assert holder.stdin is not None
    threading.Timer(0.5, holder.stdin.close).start()
    with pytest.warns(UserWarning) as warned, Store(folder).locked("0" * 8):
        pass
    (warning,) = warned
    lock = folder / "locks" / "00"
    until = "it is waited for, 600 s at most, and 10 s while it is stopped"
    assert str(warning.message) == f"process {holder.pid} is compiling under the lock {lock}: {until}"


def test_a_short_wait_is_silent(folder: Path, holder: Holder, recwarn) -> None:
    assert holder.stdin is not None
    threading.Timer(0.1, holder.stdin.close).start()
    with Store(folder).locked("0" * 8):
        pass
    assert not recwarn.list


def test_a_thread_of_this_process_is_waited_for_silently(folder: Path, in_haste: pytest.MonkeyPatch, recwarn) -> None:
    store, held, go_on = Store(folder), threading.Event(), threading.Event()

    def hold() -> None:
        with store.locked("0" * 8):
            held.set()
            go_on.wait(300)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(300)
    threading.Timer(0.2, go_on.set).start()
    with store.locked("0" * 8):
        assert go_on.is_set()
    other.join()
    assert not recwarn.list


def test_a_killed_process_holds_no_lock(folder: Path, holder: Holder) -> None:
    holder.send_signal(signal.SIGKILL)
    for i in range(LOCKS):
        with Store(folder).locked(f"{i:08x}"):
            assert (folder / "locks" / f"{i:02}").read_text() == str(os.getpid())


def test_a_stopped_process_is_not_waited_for(folder: Path, holder: Holder, in_haste: pytest.MonkeyPatch, cpu) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("here the system does not say which processes are stopped")
    in_haste.setattr(waiting, "STOPPED", 0.2)
    holder.send_signal(signal.SIGSTOP)
    try:
        with pytest.warns(UserWarning, match=rf"is not cached: .*process {holder.pid} holds the lock, and is stopped"):
            outputs = run(small_net(), CACHE_DIR=str(folder))
    finally:
        holder.send_signal(signal.SIGCONT)
    expected = pt.compile(small_net(), "reference")(inputs_of(small_net()))[0]
    assert_close(outputs, expected, rtol=1e-4)
    assert list_entries(folder) == []


def test_nobody_is_waited_for_for_ever(folder: Path, holder: Holder, in_haste: pytest.MonkeyPatch) -> None:
    in_haste.setattr(waiting, "LONGEST", 0.3)
    with (
        pytest.warns(UserWarning, match=f"process {holder.pid} is compiling"),
        pytest.raises(pt.PartitaError, match=f"process {holder.pid} has held the lock for 0.3 s\n  Let that process go on, or"),
        Store(folder).locked("0" * 8),
    ):
        pytest.fail("it has no lock")


def test_a_lock_that_says_nothing_of_its_holder(folder: Path, holder: Holder, in_haste: pytest.MonkeyPatch) -> None:
    (folder / "locks" / "00").write_text("")
    in_haste.setattr(waiting, "LONGEST", 0.1)
    with (
        pytest.warns(UserWarning, match="another process is compiling"),
        pytest.raises(pt.PartitaError, match="another process has held the lock"),
        Store(folder).locked("0" * 8),
    ):
        pytest.fail("it has no lock")
