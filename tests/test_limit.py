"""The limit of time that each test has: one that hangs fails by itself."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from passes.python_child import environment
from tests import conftest


def works() -> None:
    while True:
        pass


def waits() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


def sleeps() -> None:
    time.sleep(60)


@pytest.mark.parametrize("hangs", [works, waits, sleeps])
@pytest.mark.parametrize("phase", ["setup", "call", "teardown"])
def test_what_hangs_fails_by_itself(phase: str, hangs: Callable[[], None], request: pytest.FixtureRequest, monkeypatch) -> None:
    hook = getattr(conftest, f"pytest_runtest_{phase}")(request.node)
    with pytest.raises(pytest.fail.Exception, match="the test takes more than"):
        with monkeypatch.context() as patched:  # No longer than needed: what ends this test has its own limit.
            patched.setattr(conftest, "LIMIT", 0.02)
            next(hook)
        hangs()
    hook.close()


def test_what_python_cannot_interrupt_ends_its_process(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(
        "import ctypes, pytest\n"
        "from tests import conftest\n"
        "@pytest.fixture\n"
        "def soon():\n"
        "    conftest.LIMIT, conftest.GRACE = 0.0, 0.1\n"
        "def test_locked(soon):\n"
        "    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)\n"
        "    lock(mutex), lock(mutex)\n"
    )
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.conftest", "test_hanging.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "passed" not in run.stdout
    assert "Timeout (" in run.stderr and "in test_locked" in run.stderr
