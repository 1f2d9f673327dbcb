"""No test reads or writes the user's own cache of compiled subgraphs. With PARTITA_HOST=haswell (nehalem, x86-64) in the
environment, all tests of this process run as on such a processor: kernels are planned and compiled for it. With PARTITA_HOST=
neoverse-n1 they are planned for a processor of another architecture and compiled for this one, its instructions emulated.

What hypothesis draws is the same in every run, and may take as long as it likes. With `--hypothesis-profile=chance`, as in
`make check-all`, it draws something new each time."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from functools import wraps
from pathlib import Path

import attrs
import hypothesis
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key


def act_as(host: str) -> None:
    """From now on the host is this one, for whoever looks."""
    from partita.accelerators.tvm.machine import machine, processor
    from partita.accelerators.tvm.machine.instructions import BY_NAME

    one = processor.PROCESSORS[host]
    if not processor.is_here(one.triple):
        planned, native = machine.named_machine(host), machine.host_machine
        emulated = tuple([attrs.evolve(used, is_emulated=bool(BY_NAME[used.name].lanes)) for used in planned.instructions])
        own = {"lanes": planned.lanes, "registers": planned.registers, "instructions": emulated, "near": planned.near}
        machine.host_machine = wraps(native.__wrapped__)(lambda threads: attrs.evolve(native(threads), fuses=True, **own))
        return
    described = Path(tempfile.mkdtemp(prefix="partita-host-")) / "cpuinfo"
    linux = {ours: theirs for theirs, ours in processor.LLVM_NAMES.items()}
    described.write_text(f"flags : {' '.join(linux.get(name, name) for name in one.features)}\n")
    processor._LINUX = described
    machine.host_cpu = lambda: host


hypothesis.settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("chance", hypothesis.settings.get_profile("same"), derandomize=False, print_blob=True)
hypothesis.settings.load_profile("same")


if os.environ.get("PARTITA_HOST"):
    act_as(os.environ["PARTITA_HOST"])


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """The collector of garbage waits until all tests are there, and never looks at them again: with ten thousand it would take a
    tenth of all processor time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with limited(item):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the combinations of a thinned test's parameters every nth stays quick: those with ranks whose sum n divides."""
    values: dict[tuple[object, tuple[str, ...]], dict[tuple[int, ...], int]] = {}
    for item in items:
        marker = item.get_closest_marker("thinned")
        if marker is not None:
            (every,), ranks = marker.args, 0
            for one in item.iter_markers("parametrize"):
                names = tuple(map(str.strip, one.args[0].split(",") if isinstance(one.args[0], str) else one.args[0]))
                known = values.setdefault((item.function, names), {})  # type: ignore[attr-defined]
                value = tuple([id(item.callspec.params[name]) for name in names])  # type: ignore[attr-defined]
                ranks += known.setdefault(value, len(known))
            if ranks % every:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with limited(item):
        return (yield)


@contextlib.contextmanager
def limited(item: pytest.Item) -> Iterator[None]:
    """A test that hangs fails by itself: after LIMIT seconds, or more where other programs share the processor. One that Python
    cannot interrupt, in a kernel say, ends its process GRACE seconds later."""
    crowded = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    limit = (SLOW_LIMIT if item.get_closest_marker("slow") else LIMIT) * crowded

    def fail(*ignored: object) -> None:
        pytest.fail(f"the test takes more than {limit:.0f} s", pytrace=True)

    before = signal.signal(signal.SIGALRM, fail)
    try:
        signal.setitimer(signal.ITIMER_REAL, limit)
        faulthandler.dump_traceback_later(limit + GRACE, exit=True, file=item.config.stash.get(fault_handler_stderr_fd_key, 2))
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


LIMIT, SLOW_LIMIT = 120.0, 3600.0
"""The seconds that a test may take on an idle machine, and one that is marked slow."""

GRACE = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh-golden", action="store_true", help="write the files of kept texts anew instead of comparing")
    parser.addoption("--all-models", action="store_true", help="all models by OpenCL on a processor too, where they take an hour")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


KERNELS_KEPT = 2048


@pytest.fixture(autouse=True, scope="session")
def kernels_kept():
    """Models of many tests have kernels in common: their machine code stays in memory for longer than a program of a user's keeps
    it. The fixture is the number that is kept there."""
    from partita.accelerators.tvm.code import building

    with pytest.MonkeyPatch.context() as patch:
        kept = building.CACHED
        patch.setattr(building, "CACHED", KERNELS_KEPT)
        yield kept
