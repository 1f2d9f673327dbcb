"""Our threads: every piece is done once, by whoever is free; and parallel loops are cut without losing an iteration."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partita.accelerators.tvm.code import codegen
from partita.accelerators.tvm.run import pool

pytest.importorskip("tvm")

from tvm import tirx
from tvm.runtime import tensor
from tvm.sym import Analyzer

from partita.accelerators.tvm.code.codegen import generate, in_pieces
from partita.accelerators.tvm.kernels.language import Kernel, emit, float32
from partita.accelerators.tvm.machine.machine import host_machine

ROOT = Path(__file__).resolve().parents[3]
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pool is Linux's")
KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The pool by itself."""
    code = pool.pool_object("cc") if sys.platform.startswith("linux") else None
    if code is None:
        pytest.skip("there is no pool here")
    folder = tmp_path_factory.mktemp("pool")
    (folder / "pool.o").write_bytes(code)
    subprocess.run(["cc", "-shared", "-o", str(folder / "pool.so"), str(folder / "pool.o"), "-pthread"], check=True)
    yield ctypes.CDLL(str(folder / "pool.so"))


def launch(library: Any, threads: int, work: Callable[[int], int | None]) -> int:
    """Run the work for each piece."""
    library.partita_threads(threads)
    outcome = KERNEL(lambda piece, *_: work(piece) or 0)
    return int(library.partita_launch(outcome, None, 0))


@pytest.mark.parametrize(("threads", "count"), [(1, 1), (2, 64), (4, 64), (16, 64), (24, 1024)])
def test_every_piece_is_done_once(library: Any, threads: int, count: int) -> None:
    for _ in range(20):
        done: list[int] = []
        assert launch(library, threads, done.append) == 0
        assert sorted(done) == list(range(count))


def test_a_slow_thread_s_pieces_are_taken_by_others(library: Any) -> None:
    """Whoever has the first piece stays in it until all others have begun, fifteen of the same share among them."""
    by: dict[int, int] = {}
    all_begun = threading.Event()
    in_time: list[bool] = []

    def work(piece: int) -> None:
        by[piece] = threading.get_ident()
        if len(by) == 64:
            all_begun.set()
        if piece == 0:
            in_time.append(all_begun.wait(300))

    launch(library, 4, lambda _: None)
    launch(library, 4, work)
    assert sorted(by) == list(range(64)) and in_time == [True]


def test_a_kernel_that_fails_says_so_on_the_caller_s_thread(library: Any) -> None:
    seen: list[int] = []

    def work(piece: int) -> int:
        if piece != 40:
            return 0
        seen.append(threading.get_ident())
        return -1

    assert launch(library, 4, work) == -1
    assert seen[-1] == threading.get_ident()
    assert launch(library, 4, lambda _: 0) == 0


def test_a_kernel_that_starts_another(library: Any) -> None:
    inner: list[int] = []

    def work(piece: int) -> int:
        outcome = KERNEL(lambda *_: inner.append(piece) or 0)
        return int(library.partita_launch(outcome, None, 0))

    assert launch(library, 3, work) == 0
    assert sorted(inner) == list(range(64))


def races(source: str, tmp_path: Path) -> str:
    """The first data race of the pool's code that ThreadSanitizer reports, which knows the language's order of memory alone."""
    (tmp_path / "pool.c").write_text(source)
    driver, program = Path(__file__).with_name("pool_races.c"), tmp_path / "races"
    command = ["cc", "-O1", "-g", "-fsanitize=thread", f'-DPOOL="{tmp_path}/pool.c"', driver, "-o", program, "-pthread"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no ThreadSanitizer here")
    options = {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}
    try:
        done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300, env=options)
    except OSError:
        pytest.skip("what is compiled here runs elsewhere")  # in an emulated Python
    if "FATAL: ThreadSanitizer" in done.stderr:
        pytest.skip("ThreadSanitizer does not start here")
    assert done.returncode in (0, 66), done.stderr
    assert (done.returncode == 66) == ("data race" in done.stderr)
    return done.stderr[:4000]


@linux
def test_the_order_of_memory_is_enough_for_any_processor(tmp_path: Path) -> None:
    assert races(pool.SOURCE.read_text(), tmp_path) == ""


WEAKER = {
    "pieces done": ("add(&seat.team->gate, -1)", "__atomic_fetch_add(&seat.team->gate, -1, __ATOMIC_RELAXED)"),
    "gate closed": ("load(&team->gate) != CLOSED", "__atomic_load_n(&team->gate, __ATOMIC_RELAXED) != CLOSED"),
    "loads": ("__atomic_load_n(p, __ATOMIC_SEQ_CST)", "__atomic_load_n(p, __ATOMIC_RELAXED)"),
    "counts": ("__atomic_fetch_add(p, n, __ATOMIC_SEQ_CST)", "__atomic_fetch_add(p, n, __ATOMIC_RELAXED)"),
}


@linux
@pytest.mark.slow
@pytest.mark.parametrize("kind", WEAKER)
def test_a_weaker_order_of_memory_is_a_race(kind: str, tmp_path: Path) -> None:
    source = pool.SOURCE.read_text()
    assert source.count(WEAKER[kind][0]) == 1
    assert "data race" in races(source.replace(*WEAKER[kind]), tmp_path)


def threads_now() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_callers_one_after_the_other_share_a_team(library: Any) -> None:
    launch(library, 5, lambda _: None)
    before = threads_now()
    for _ in range(10):
        caller = threading.Thread(target=lambda: launch(library, 5, lambda _: None))
        caller.start()
        caller.join()
    assert threads_now() < before + 10


def test_callers_at_once_have_a_team_each(library: Any) -> None:
    """Each waits in its kernel for the other to begin."""
    both, done = threading.Barrier(2), [Counter[int](), Counter[int]()]

    def call(number: int) -> None:
        def work(piece: int) -> None:
            if piece == 0:
                both.wait(timeout=300)
            done[number][piece] += 1

        assert launch(library, 3, work) == 0

    other = threading.Thread(target=call, args=(1,))
    other.start()
    call(0)
    other.join()
    assert done == [Counter(range(64))] * 2


def test_teams_that_were_idle_for_longest_go_home(library: Any) -> None:
    most = 600 + threads_now()
    for threads in range(2, 60):
        launch(library, threads, lambda _: None)
    end = time.monotonic() + 300
    while threads_now() > most and time.monotonic() < end:
        time.sleep(0.01)
    assert threads_now() <= most
    done: list[int] = []
    assert launch(library, 2, done.append) == 0
    assert sorted(done) == list(range(64))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has ways to tell")
def test_small_stacks_are_not_for_our_threads(library: Any) -> None:
    code = f"""
import ctypes, resource, sys, threading, time
library, system = ctypes.CDLL({library._name!r}), ctypes.CDLL(None)
system.pthread_self.restype = ctypes.c_void_p
sizes = set()
def note(*_):
    held, size = (ctypes.c_char * 256)(), ctypes.c_size_t()
    assert system.pthread_getattr_np(ctypes.c_void_p(system.pthread_self()), held) == 0
    assert system.pthread_attr_getstacksize(held, ctypes.byref(size)) == 0
    if threading.current_thread() is not threading.main_thread():
        sizes.add(size.value)
    time.sleep(0.001)
    return 0
library.partita_threads(4)
kernel = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(note)
while not sizes:
    assert library.partita_launch(kernel, None, 0) == 0
assert min(sizes) >= 1 << 20, sizes
"""
    command = ["sh", "-c", 'ulimit -s 256 && exec "$0" -c "$1"', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="versions differ")
def test_it_runs_wherever_tvm_does(library: Any) -> None:
    """TVM's own libraries need glibc 2.27."""
    versions = re.findall(rb"GLIBC_2\.(\d+)", Path(library._name).read_bytes())
    assert max(map(int, versions), default=0) <= 27


def test_a_compiler_with_options_and_one_that_fails() -> None:
    assert (pool.pool_object("env", "cc") is None) == (pool.pool_object("cc") is None)
    assert pool.pool_object("false") is None


def test_idle_threads_sleep(library: Any) -> None:
    launch(library, 4, lambda _: None)

    def busy() -> float:
        """The processor time of a while in which nobody calls."""
        before = time.process_time()
        time.sleep(0.2)
        return time.process_time() - before

    assert any(busy() < 0.1 for _ in range(20)), "other threads of this process may be at work for a while, but not for ever"


def test_a_child_has_threads_of_its_own(library: Any) -> None:
    code = f"""
import ctypes, os, signal, sys
library = ctypes.CDLL({library._name!r})
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pool is Linux's")
KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
library.partita_threads(3)
def right():
    done = []
    kernel = KERNEL(lambda piece, *_: done.append(piece) or 0)
    return library.partita_launch(kernel, None, 0) == 0 and sorted(done) == list(range(64))
assert right()
if os.fork() == 0:
    signal.alarm(240)
    os._exit(0 if right() else 1)
assert right()
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", [1, 3, 4, 40])
@pytest.mark.parametrize("extent", [1, 3, 28, 63, 64, 65, 1000, 1025])
def test_a_loop_in_pieces_has_the_same_iterations(extent: int, threads: int) -> None:
    kernel = Kernel("counted")
    given, result = kernel.input("x", float32, (extent,)), kernel.output("y", float32, (extent,))
    with kernel.loop(extent, "i", "parallel") as i:
        result[i] = given[i] + 1.0
    outcome = generate({"counted": emit(kernel)}, host_machine(threads).target)
    x = np.arange(extent, dtype="float32")
    out = tensor(np.zeros_like(x))
    outcome["counted"](tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), x + 1)


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("threads", [4, 40])
@pytest.mark.parametrize(("begin", "extent"), [(0, 0), (0, 7), (5, 1), (3, 64), (-2, 65), (1, 2**31 - 2), (0, 2**25 + 1)])
def test_pieces_follow_one_another_from_the_first_iteration_to_the_last(begin: int, extent: int, threads: int, kind: str) -> None:
    for size in (tirx.IntImm(kind, extent), tirx.Var("n", kind)):
        variable = tirx.Var("i", kind)
        whole = tirx.For(variable, tirx.IntImm(kind, begin), size, tirx.ForKind.PARALLEL, tirx.Evaluate(variable))
        outer = in_pieces(whole, threads)
        at, pieces = begin, int(outer.extent)
        for piece in range(pieces):
            known = {outer.loop_var: tirx.IntImm("int32", piece), size: tirx.IntImm(kind, extent)}
            first, count = (value(part, known) for part in (outer.body.min, outer.body.extent))
            assert first == at and count in (extent // pieces, -(-extent // pieces))
            at += count
        assert at == begin + extent


def value(expression: Any, known: dict[Any, Any]) -> int:
    """The number that it is with these in place of variables."""
    analyzer = Analyzer()
    for variable, number in known.items():
        if isinstance(variable, tirx.Var):
            analyzer.bind(variable, number)
    return int(analyzer.simplify(expression))


def test_the_pool_and_the_loops_agree_on_the_number_of_pieces() -> None:
    text = pool.SOURCE.read_text()
    for name in ("FEW", "FEW_THREADS", "MANY"):
        assert f"{name} = {getattr(codegen, name)}," in text
