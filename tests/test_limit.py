"""The limit of time that each test has: one that hangs fails by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from partita.passes.python_child import environment

HANGING = """
import threading, time, pytest
from tests import conftest

def works():
    while True:
        pass

def waits():
    lock = threading.Lock()
    with lock:
        lock.acquire()

def sleeps():
    time.sleep(600)

@pytest.fixture
def soon():
    conftest.LIMIT = 0.3

@pytest.mark.parametrize("hangs", [works, waits, sleeps])
def test_hangs(hangs, soon):
    hangs()
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Pytest, with the project's conftest, on one file of tests, in a process of its own."""
    (folder / "test_hanging.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.conftest", "test_hanging.py"]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def test_what_hangs_fails_by_itself(tmp_path: Path) -> None:
    done = run(tmp_path, HANGING)
    assert "3 failed" in done.stdout and "passed" not in done.stdout, done.stdout[-3000:]
    assert done.stdout.count("Failed: the test takes more than") >= 3


def test_what_python_cannot_interrupt_ends_its_process(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import ctypes, pytest\n"
        "from tests import conftest\n"
        "@pytest.fixture\n"
        "def soon():\n"
        "    conftest.LIMIT, conftest.GRACE = 0.0, 0.1\n"
        "def test_locked(soon):\n"
        "    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)\n"
        "    lock(mutex), lock(mutex)\n",
    )
    assert done.returncode == 1 and "passed" not in done.stdout
    assert "Timeout (" in done.stderr and "in test_locked" in done.stderr
