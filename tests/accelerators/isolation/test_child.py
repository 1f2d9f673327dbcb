"""Children that answer with something else, end oddly, or are forked with their parent."""

from __future__ import annotations

import mmap
import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest

from partita.accelerators.process.child import Child, Ended
from partita.accelerators.process.memory import SharedMemory

READ = """
import os, socket, struct, sys, time
stream = socket.socket(fileno=int(sys.argv[-4]))
stream.recv(struct.unpack("<Q", stream.recv(8))[0])
def say(text, size=None):
    stream.sendall(struct.pack("<Q", len(text) if size is None else size) + text)
    time.sleep(60)
"""

SAID = {
    "say(b'[]')": "neither an answer nor an error",
    "say(b'5')": "neither an answer nor an error",
    "say(b'{}')": "neither an answer nor an error",
    "say(b'{\"error\": 3}')": "neither an answer nor an error",
    "say(b'hello')": "not JSON",
    "say(b'\\xff' * 5)": "not JSON",
    "say(b'[' * 200_000)": "not JSON",
    "say(b'{\"answer\":' + b'9' * 5000 + b'}')": "not JSON",
    "say(b'', 1 << 63)": "announced",
    "os.kill(os.getpid(), 40)": "signal 40",
    "sys.exit(4)": "exit status 4",
}


def child(code: str) -> Child:
    return Child([sys.executable, "-c", READ + code])


@pytest.mark.parametrize("code", SAID)
def test_what_is_no_answer_ends_the_child(code: str) -> None:
    one = child(code)
    with pytest.raises(Ended, match=SAID[code]):
        one.ask({"a": 1}, seconds=120)
    assert not one.is_alive


@pytest.mark.parametrize("seconds", [-1, 0, 1e-9])
def test_no_time_at_all_is_too_little(seconds: float) -> None:
    one = child("time.sleep(60)")
    with pytest.raises(TimeoutError):
        one.ask({"a": 1}, seconds=seconds)
    assert not one.is_alive


def test_all_the_time_there_is() -> None:
    for seconds in (float("inf"), None):
        one = child("say(b'{\"answer\": 7}')")
        assert one.ask({"a": 1}, seconds=seconds) == 7
        one.end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_child_ends_with_its_parent_though_that_has_forked() -> None:
    code = """
        import os, signal, time
        from partita.accelerators.process.child import Child
        from partita.passes.python_child import module_command
        worker = Child(module_command("partita.mapping.worker"))
        if os.fork() == 0:
            os.close(1)
            time.sleep(120)
            os._exit(0)
        print(worker.number, flush=True)
        time.sleep(120)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, process_group=0)
    assert parent.stdout is not None
    with parent.stdout:
        worker = os.pidfd_open(int(parent.stdout.readline()))
    try:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        assert select.select([worker], [], [], 60)[0], "it outlives its parent"
    finally:
        os.close(worker)
        os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.parametrize("missing", ["socket_pair", "pipe", "SharedMemory", "environment"])
def test_a_child_that_cannot_be_started_leaves_nothing_open(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(f"partita.accelerators.process.child.{missing}", failing)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="Too many open files"):
        Child([sys.executable, "-c", "pass"])
    assert os.listdir("/proc/self/fd") == before


def test_shared_memory_grows_by_pages() -> None:
    memory = SharedMemory()
    try:
        sizes = [len(memory.reserve(size)) for size in (0, 1, mmap.PAGESIZE, mmap.PAGESIZE + 1, 3)]
        assert sizes == [0, mmap.PAGESIZE, mmap.PAGESIZE, 2 * mmap.PAGESIZE, 2 * mmap.PAGESIZE]
    finally:
        os.close(memory.file)
