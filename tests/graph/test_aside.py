"""Files that are written aside: what an ended process leaves is removed, and what is being written is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from partita.accelerators.process.atomic import replacing, write_text
from partita.cli import exits, main
from partita.graph import atomic_write

ROOT = Path(__file__).resolve().parents[2]

WRITING = """
import sys, time
from partita.accelerators.process.atomic import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("there", flush=True)
    time.sleep(600)
"""


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".part"))


def test_what_a_process_left_is_removed_when_the_next_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", WRITING, str(tmp_path / "net.partita")]
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == b"there\n"
        assert len(parts(tmp_path)) == 2
        children[0].send_signal(signal.SIGTERM)
        children[0].wait()
        monkeypatch.setattr(atomic_write, "_seen", set())
        write_text(tmp_path / "other", "text")
        assert len(parts(tmp_path)) == 1, "the file of the process that is at work stays"
    finally:
        for child in children:
            child.kill()
            child.communicate()
    monkeypatch.setattr(atomic_write, "_seen", set())
    write_text(tmp_path / "other", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_file_that_somebody_removes_just_then_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made, and not locked yet: to who looks for abandoned files it looks like one."""
    lock, locked = atomic_write.fcntl.flock, list[int]()

    def late(number: int, how: int) -> None:
        locked.append(number)
        if len(locked) == 1:
            raise BlockingIOError
        lock(number, how)

    monkeypatch.setattr(atomic_write.fcntl, "flock", late)
    write_text(tmp_path / "other", "text")
    assert len(locked) == 2 and (tmp_path / "other").read_text() == "text"


def test_sigterm_ends_a_command_as_an_error_does(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end, main._ended_as_by_error(), replacing(tmp_path / "net.partita") as file:
        file.write(b"half")
        os.kill(os.getpid(), signal.SIGTERM)
    assert end.value.code == exits.TERMINATED == 143
    assert not list(tmp_path.iterdir()) and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
