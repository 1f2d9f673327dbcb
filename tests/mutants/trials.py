"""Changes tried: the tests of each run in a forked process in which the code of the changed function is replaced."""

from __future__ import annotations

import gc
import importlib.util
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from tests.mutants.changes import ROOT, Mutant
from tests.mutants.maps import FIRST, HOME

if TYPE_CHECKING:
    import pytest

TREE = HOME / "tree"

SECONDS = 600.0
"""The time that the tests of one change may take together on an idle machine; it is unnoticed if all passed until then."""

HANGS = 60.0
"""The processor time of one test, in seconds, after which its process ends: the change is noticed."""

SILENT = 150.0
"""The time of one test on an idle machine, in seconds, after which its process is ended: the change is noticed."""

MEMORY = 64 << 30
"""The memory of a changed program, in bytes; browsers reserve more addresses than any limit of these allows."""


class Trials:
    """A plugin of pytest that tries changes once all tests are collected: each in a forked process, in which the code of the
    changed function is replaced. A change of what runs when a module is imported is tried in a new process."""

    def __init__(self, chosen: Mapping[Mutant, Sequence[str]]) -> None:
        self.chosen = chosen
        self.unnoticed: dict[Mutant, str] = {}
        """Why nothing noticed a change."""
        self.sound: set[str] = set()
        """Tests that pass without any change."""
        self.broken: set[str] = set()
        """Tests that fail without any change: nobody asks what they say of a changed tree."""
        self._events: int | None = None
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[str, list[FunctionType]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all changes, in place of running all tests."""
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        for function in gc.get_objects():
            if type(function) is FunctionType:
                self._functions.setdefault(_real(function.__code__.co_filename), []).append(function)
        gc.freeze()
        begun = time.monotonic()
        for number, (mutant, tests) in enumerate(self.chosen.items(), 1):
            killer, why = self._tried(mutant, tests)
            if killer is None:
                self.unnoticed[mutant] = why
            noticed = f"unnoticed ({why})" if killer is None else f"noticed by {killer}"
            print(f"{number}, {time.monotonic() - begun:.0f} s: {mutant}: {noticed}", flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._events is not None:
            os.write(self._events, f"failed {report.nodeid}\n".encode("utf-8", "backslashreplace"))

    def _tried(self, mutant: Mutant, tests: Sequence[str]) -> tuple[str | None, str]:
        """The test that notices a change; None, and how many passed."""
        expanded = [name for test in tests for name in ([test] if "::" in test else self._in_file(test))]
        remaining = names = [name for name in dict.fromkeys(expanded) if name in self._items]
        passed = 0
        while remaining := [name for name in remaining if self._says_something(name)]:
            with changed(mutant) as text:
                failed, begun = self._failing(remaining, mutant, text)
            if not failed:
                return None, f"{passed + begun} of {len(names)} tests pass"
            broken = [] if self.sound.issuperset(failed) else self._failing(failed)[0]
            if not broken:
                self.sound.update(failed)
                return failed[0], ""
            print(f"fails without any change: {broken[0]}", flush=True)
            self.broken.add(broken[0])
            if len(failed) == 1:
                passed, remaining = passed + begun - 1, remaining[begun:]
        return None, f"{passed} of {len(names)} tests pass" if passed else "no test runs the line"

    def _says_something(self, test: str) -> bool:
        """False for a test that fails without any change, and for those of a file with two such tests."""
        file = test.partition("::")[0] + "::"
        return test not in self.broken and sum(broken.startswith(file) for broken in self.broken) < 2

    def _in_file(self, path: str) -> list[str]:
        return [name for name in self._items if name.partition("::")[0] == path]

    def _failing(self, tests: Sequence[str], mutant: Mutant | None = None, text: str = "") -> tuple[Sequence[str], int]:
        """The first of these tests that fails, ends its process or does not end, none if all pass; and how many began."""
        functions = [] if mutant is None else self._changed_functions(mutant, text)
        if functions is None:
            return self._failing_anew(tests)
        sys.stdout.flush()
        events, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(events)
            self._run(tests, functions, theirs)
        os.close(theirs)
        factor = crowded()
        written, end, late = b"", time.monotonic() + factor * SECONDS, False
        try:
            while select.select([events], [], [], min(factor * SILENT, max(0.0, end - time.monotonic())))[0]:
                if not (part := os.read(events, 1 << 16)):
                    break
                written += part
            else:
                late = time.monotonic() >= end
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(events)
        lines = [line.partition(" ") for line in written.decode("utf-8", "replace").splitlines()]
        begun, failed = ([test for kind, _, test in lines if kind == asked] for asked in ("begun", "failed"))
        if failed:
            return failed[:1], len(begun)
        if late or any(kind == "ended" for kind, _, _ in lines):
            return (), len(begun)
        return [begun[-1] if begun else tests[0]], len(begun)

    def _changed_functions(self, mutant: Mutant, text: str) -> list[tuple[FunctionType, CodeType]] | None:
        """The functions that a change is in and their new code; None where it is in none of a module that is imported already."""
        path = _real(str(TREE / mutant.path))
        if not any(_real(getattr(module, "__file__", None) or "") == path for module in list(sys.modules.values())):
            return []
        codes = dict(_codes(compile(text, path, "exec", dont_inherit=True)))
        functions = []
        for function in self._functions.get(path, ()):
            old = function.__code__
            new = codes.get((old.co_qualname, old.co_firstlineno))
            if new is not None and new != old:
                if new.co_freevars != old.co_freevars:
                    return None
                functions.append((function, new))
        return functions or None

    def _run(self, tests: Sequence[str], functions: Iterable[tuple[FunctionType, CodeType]], events: int) -> None:
        """Run tests as the process of one change, and end it."""
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            output = os.open(HOME / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(output, stream)
            for function, code in functions:
                function.__code__ = code
            self._events = events
            items = [self._items[test] for test in tests]
            session = items[0].session
            for item, following in zip(items, [*items[1:], None]):
                os.write(events, f"begun {item.nodeid}\n".encode("utf-8", "backslashreplace"))
                signal.setitimer(signal.ITIMER_PROF, HANGS)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    break
            else:
                os.write(events, b"ended \n")
        finally:
            os._exit(0)

    def _failing_anew(self, tests: Sequence[str]) -> tuple[Sequence[str], int]:
        """Tests one of which fails in a new process, in which all modules are imported again, or few of which do not end."""
        for batch in filter(None, (tests[:FIRST], tests[FIRST:])):
            options = ["-q", "-x", "-m", "", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={HOME / 'temporary'}"]
            command = [sys.executable, "-m", "pytest", *options, *batch]
            with open(HOME / "output", "w") as output:
                run = subprocess.Popen(command, cwd=TREE, stdout=output, stderr=output, start_new_session=True)
            try:
                if run.wait(crowded() * SECONDS) != 0:
                    return batch, len(batch)
            except subprocess.TimeoutExpired:
                if len(batch) <= FIRST:
                    return batch, len(batch)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        return (), len(tests)


def crowded() -> float:
    """The factor by which all takes longer, since other programs share the processor."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@cache
def _real(path: str) -> str:
    """The path without links: modules are found through those of `partita/`."""
    return os.path.realpath(path)


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """A code object and all inside of it, by their names and first lines."""
    yield (code.co_qualname, code.co_firstlineno), code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@contextmanager
def changed(mutant: Mutant) -> Iterator[str]:
    """The changed file in the copied tree, for as long as the context is open."""
    path = TREE / mutant.path
    original, times = path.read_text("utf-8"), path.stat()
    compiled = Path(importlib.util.cache_from_source(str(path)))
    compiled.unlink(missing_ok=True)
    text = mutant.apply(original)
    path.write_text(text, "utf-8")
    try:
        yield text
    finally:
        compiled.unlink(missing_ok=True)
        path.write_text(original, "utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def tried(chosen: Mapping[Mutant, Sequence[str]]) -> dict[Mutant, str]:
    """Why nothing noticed a change, of those that nothing noticed."""
    import pytest

    files = sorted({test.partition("::")[0] for tests in chosen.values() for test in tests})
    trials = Trials(chosen)
    os.chdir(TREE)
    sys.path[0] = os.environ["PYTHONPATH"] = str(TREE)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    options = ["-q", "-s", "-m", "", "-n", "0", "-p", "no:cacheprovider", "--no-header", f"--basetemp={HOME / 'temporary'}"]
    if files:
        pytest.main([*options, *files], plugins=[trials])
    return trials.unnoticed


def copy_tree() -> None:
    """The files that git knows, beside the checkout. What is there already and the same stays, with what was compiled of it."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = {name for name in listed if (ROOT / name).is_file()}
    for name in [name for name in listed if (ROOT / name).is_symlink() and not (TREE / name).is_symlink()]:
        (TREE / name).parent.mkdir(parents=True, exist_ok=True)
        (TREE / name).symlink_to((ROOT / name).readlink())
    for path in [path for path in TREE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]:
        if path.relative_to(TREE).as_posix() not in files:
            path.unlink()
    for name in files:
        source, copy = ROOT / name, TREE / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
