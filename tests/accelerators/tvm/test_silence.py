"""TVM is silent, and nobody else is: whichever threads compile, and in whatever order they are done."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from partita.accelerators.tvm.machine.tvm_errors import Silence


def in_a_thread(action) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_threads_that_leave_in_the_order_in_which_they_came_leave_all_as_it_was(capsys) -> None:
    """The second put back what the first had put there: the process printed and warned no more."""
    silence, inside, may_leave = Silence(), threading.Event(), threading.Event()
    stream, filters = sys.stdout, list(warnings.filters)

    def first() -> None:
        with silence:
            print("first")
            inside.set()
            assert may_leave.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(60)
    with silence:
        print("second")
        may_leave.set()
        thread.join()
        in_a_thread(lambda: print("somebody else"))
        with silence:
            warnings.warn("of TVM's", stacklevel=1)
        print("second still")
    assert sys.stdout is stream
    assert list(warnings.filters) == filters
    print("and all")
    assert capsys.readouterr().out == "somebody else\nand all\n"


def test_a_process_without_standard_output_has_none_inside_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon has none, and print does nothing there."""
    monkeypatch.setattr(sys, "stdout", None)
    with Silence(), ThreadPoolExecutor() as pool:
        print("TVM's", flush=True)
        pool.submit(print, "somebody else", flush=True).result()
    assert sys.stdout is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_is_not_silent_for_a_thread_that_it_lacks() -> None:
    silence, inside, may_leave = Silence(), threading.Event(), threading.Event()
    stream = sys.stdout

    def other() -> None:
        with silence:
            inside.set()
            assert may_leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if sys.stdout is stream else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    may_leave.set()
    thread.join()
    assert status == 0
