"""Mutation testing: small changes to the product's code, drawn by chance, each of which some test has to notice.

    python -m tests.mutants --map                    record which tests run which lines (once, under coverage)
    python -m tests.mutants --map --tests tests/cli  record these tests once more, as they are now
    python -m tests.mutants --map "--tests=-m,slow,tests/microsoft"         record slow ones too
    python -m tests.mutants --count 150              draw so many changes, run the tests of each, list those that nobody noticed
    python -m tests.mutants --at passes/manager.py:31       all changes of one line (with --tests: held against these tests)

`--under graph,passes` draws from these folders alone. A map belongs to the commit that was checked out when it was recorded;
lines are found again in later ones, and new files of kept lines are recorded before a draw. The changed tree is a copy; the
checkout stays as it is. Needs the extra `mutants`."""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import importlib.util
import itertools
import keyword
import os
import random
import re
import resource
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "mutants"
TREE = HOME / "tree"
MAPS = HOME / "maps"
PRODUCT = ("graph", "passes", "partition", "accelerators", "partita")

WANTED = 0.92
"""The share of changes that tests have to notice."""

MOST = 400
"""The number of tests that run for one change."""

SECONDS = 600.0
"""The time that the tests of one change may take together on an idle machine; it is unnoticed if all passed until then."""

HANGS = 60.0
"""The processor time of one test, in seconds, after which its process ends: the change is noticed."""

SILENT = 150.0
"""The time of one test on an idle machine, in seconds, after which its process is ended: the change is noticed."""

MEMORY = 64 << 30
"""The memory of a changed program, in bytes; browsers reserve more addresses than any limit of these allows."""

FIRST = 12
"""The number of tests that run first for a change that needs a new process."""

SHARED = 4
"""The factor by which a test may run more lines for each word that it shares with the place of a change."""

NEEDS = {
    "partita/torch_compile/": "torch",
    "graph/readers/torch": "torch",
    "partita/mapping/on_ray.py": "ray",
    "partita/mapping/many.py": "ray",
    "partita/cli/map.py": "pyarrow",
}
"""Files and folders whose tests need a package."""

IN_CHILDREN = {
    "accelerators/tvm/compiled/cuda_": "tests/accelerators/tvm/test_cuda_runs.py",
    "accelerators/tvm/run/cuda_": "tests/accelerators/tvm/test_cuda_runs.py",
    "accelerators/tvm/query/trial_child": "tests/accelerators/tvm/test_trial_process.py",
    "accelerators/interface/isolation/": "tests/accelerators/isolation",
    "accelerators/process/": "tests/accelerators/isolation",
    "passes/version_converter": "tests/passes/test_version_converter.py",
    "partita/mapping/": "tests/mapping",
    "partita/demo": "tests/test_demo.py",
}
"""Beginnings of the names of files that run in processes of their own, which no map records, and the tests that start these."""

COMMON = frozenset(keyword.kwlist) | {"accelerators", "graph", "node", "none", "self", "test", "tests", "value"}
"""Words that tell nothing of a place."""

KEPT = re.compile(r".*/test_(planned|kept_(?!networks)\w+)\.py::")
"""Tests that compare with kept lines: each runs much of the code, and notices whatever changes its line."""

WITHOUT_EFFECT = ("slots", "eq", "repr", "maxsize", "strict")
"""Keywords without effect on a result: how attrs makes classes whose instances nobody compares or prints, the size of a cache,
the assertion of `zip(strict=True)`."""

LARGE = 100
"""From here on an integer is doubled: one more of it changes nothing that matters."""

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}


@attrs.frozen(slots=True)
class Mutant:
    """One change of one file."""

    path: str
    """The file, relative to the checkout."""
    line: int
    """The first line that changes."""
    before: str
    """The source segment."""
    after: str
    """Its replacement."""
    start: int
    """Its offset in the file, in characters."""

    def apply(self, text: str) -> str:
        """The changed file."""
        return text[: self.start] + self.after + text[self.start + len(self.before) :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All changes that are tried in a file."""
    text = path.read_text("utf-8")
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    name = path.relative_to(ROOT).as_posix()
    for node in _nodes(ast.parse(text)):
        changed = _changed(node)
        if changed is None or not isinstance(node, ast.expr) or node.end_lineno != node.lineno:
            continue
        line = lines[node.lineno - 1].encode()
        first, last = (len(line[:offset].decode()) for offset in (node.col_offset, node.end_col_offset or 0))
        start = starts[node.lineno - 1]
        yield Mutant(name, node.lineno, text[start + first : start + last], f"({ast.unparse(changed)})", start + first)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is inside of it, without what has no effect on a result: types, assertions, and some keywords."""
    if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        return
    yield node
    for field, child in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for inner in child if isinstance(child, list) else [child]:
            if isinstance(inner, ast.keyword) and inner.arg in WITHOUT_EFFECT:
                continue
            if isinstance(inner, ast.AST):
                yield from _nodes(inner)


def _changed(node: ast.AST) -> ast.expr | None:
    """The expression with one thing changed; None for what is left alone."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
            return ast.Compare(node.left, [COMPARED[type(operator)]()], node.comparators)
        case ast.BoolOp(op=ast.And()):
            return ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp(op=ast.Or()):
            return ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.BinOp() if type(node.op) in COMPUTED and not _is_text(node):
            return ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
        case ast.Constant(value=bool()):
            return ast.Constant(not node.value)
        case ast.Constant(value=int()):
            return ast.Constant(node.value * 2 if node.value >= LARGE else node.value + 1)
        case ast.IfExp():
            return node.orelse
    return None


def _is_text(node: ast.BinOp) -> bool:
    texts = (inner for inner in ast.walk(node) if isinstance(inner, (ast.Constant, ast.JoinedStr)))
    return any(not isinstance(getattr(text, "value", ""), (int, float)) for text in texts)


def every_mutant(under: Iterable[str]) -> list[Mutant]:
    """All changes of the files in these folders that tests here can notice."""
    left_out = [name for name, package in NEEDS.items() if not importlib.util.find_spec(package)]
    paths = [path for folder in under for path in sorted((ROOT / folder).rglob("*.py"))]
    kept = [path for path in paths if not path.relative_to(ROOT).as_posix().startswith(tuple(left_out))]
    return [mutant for path in kept for mutant in mutants_of(path)]


def lines_of(mutant: Mutant) -> Iterator[dict[str, set[int]]]:
    """Lines of files whose tests may notice the change, those that tell most first: the line itself, its statement, its function.
    A line that runs when its module is imported has those of the functions that mention its name, then of the whole file."""
    tree = ast.parse((ROOT / mutant.path).read_text("utf-8"))
    around = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    around.sort(key=lambda node: node.lineno)
    functions = [node for node in around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inside = [node for node in functions if mutant.line >= node.body[0].lineno]
    if inside:
        statement = around[-1]
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if body else statement.end_lineno or 0
        yield {mutant.path: {mutant.line}}
        yield {mutant.path: set(range(statement.lineno, last + 1))}
        yield {mutant.path: _body(inside[-1])}
    elif functions:
        yield {mutant.path: _body(functions[-1])}
    else:
        if any(node.lineno <= mutant.line <= (node.end_lineno or 0) for node in ast.walk(tree) if isinstance(node, ast.Lambda)):
            yield {mutant.path: {mutant.line}}
        names = frozenset(_names(around))
        yield {path: lines for path in _files() if (lines := _mentions(path, names))}
    yield {mutant.path: set().union(*(lines for _, lines in _functions(mutant.path)))}


def _names(around: Sequence[ast.stmt]) -> Iterator[str]:
    """The name of the class around, or else those that the statement defines."""
    if around and isinstance(around[0], ast.ClassDef):
        yield around[0].name
    elif around:
        for target in getattr(around[-1], "targets", [getattr(around[-1], "target", around[-1])]):
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store))


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    return set(range(function.body[0].lineno, (function.end_lineno or 0) + 1))


@cache
def _files() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]


@cache
def _functions(path: str) -> list[tuple[str, set[int]]]:
    """The functions of a file: their text and the lines of their bodies."""
    text = (ROOT / path).read_text("utf-8")
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lines = text.splitlines()
    return [("\n".join(lines[node.body[0].lineno - 1 : node.end_lineno]), _body(node)) for node in functions]


@cache
def _mentions(path: str, names: frozenset[str]) -> set[int]:
    """The lines of the functions in a file that mention one of the names."""
    if not names:
        return set()
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    return set().union(*(lines for text, lines in _functions(path) if pattern.search(text)))


class Map:
    """Which tests ran which lines of one commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commit = path.name.partition("-")[0]
        command = ["git", "diff", "--find-renames", "--diff-filter=MR", "--name-status", self.commit]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        changes = [line.split("\t")[1:] for line in listed]
        self.before = {names[-1]: names[0] for names in changes}
        """The recorded paths of files that have changed, by the paths that they have now."""
        self.now = {before: now for now, before in self.before.items()}
        with closing(sqlite3.connect(path)) as data:
            asked = (
                "select context, sum(length(numbits)) from line_bits join context on context.id = context_id "
                "where context != '' group by context"
            )
            self.sizes: Counter[str] = Counter()
            for name, size in data.execute(asked):
                self.sizes[self._named(name)] += size

    def ways(self, path: str) -> dict[str, int]:
        """The lines of a file that each test ran, as bits of a number."""
        ways: Counter[str] = Counter()
        for name, ran in self._ran(self.before.get(path, path)):
            ways[name] |= ran
        return ways

    def tests(self, path: str, lines: Collection[int]) -> set[str]:
        """The tests that ran one of these lines, which are counted as the file is now."""
        mask = sum(1 << line for line in self._earlier(path, lines))
        return {name for name, ran in self._ran(self.before.get(path, path)) if ran & mask}

    @cache  # noqa: B019
    def of_function(self, name: str) -> set[str]:
        """The tests that ran a function of this name, wherever it was when this was recorded."""
        command = ["git", "grep", "-l", f"def {name}(", self.commit, "--", *PRODUCT]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
        tests: set[str] = set()
        for path in [line.partition(":")[2] for line in listed]:
            mask = sum(
                1 << line
                for node in ast.walk(ast.parse(self._recorded(path)))
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
                for line in _body(node)
            )
            tests |= {test for test, ran in self._ran(path) if ran & mask}
        return tests

    @cache  # noqa: B019
    def has(self, path: str) -> bool:
        """True if the file existed when this was recorded."""
        name = f"{self.commit}:{self.before.get(path, path)}"
        return subprocess.run(["git", "cat-file", "-e", name], cwd=ROOT, capture_output=True, check=False).returncode == 0

    def _recorded(self, path: str) -> str:
        command = ["git", "show", f"{self.commit}:{path}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout

    @cache  # noqa: B019
    def _ran(self, path: str) -> list[tuple[str, int]]:
        """The tests that ran lines of a recorded file; bit n of the number stands for line n, as in coverage's database."""
        asked = (
            "select context, numbits from line_bits join file on file.id = file_id "
            "join context on context.id = context_id where file.path = ? and context != ''"
        )
        with closing(sqlite3.connect(self.path)) as data:
            rows = data.execute(asked, (path,)).fetchall()
        return [(self._named(context), int.from_bytes(bits, "little")) for context, bits in rows]

    def _named(self, context: str) -> str:
        """The test that a context is of, by the path that its file has now."""
        path, colons, name = context.partition("|")[0].partition("::")
        return self.now.get(path, path) + colons + name

    def _earlier(self, path: str, lines: Collection[int]) -> set[int]:
        """The lines of the recorded file that these were, or that stood where they are now."""
        if path not in self.before:
            return set(lines)
        earlier: set[int] = set()
        for kind, first, last, now_first, now_last in self._changes(path):
            for line in lines:
                if now_first < line <= now_last:
                    earlier.update([line - now_first + first] if kind == "equal" else range(first, last + 2))
        return earlier

    @cache  # noqa: B019
    def _changes(self, path: str) -> list[tuple[str, int, int, int, int]]:
        before = self._recorded(self.before[path]).splitlines()
        now = (ROOT / path).read_text("utf-8").splitlines()
        return difflib.SequenceMatcher(None, before, now, autojunk=False).get_opcodes()


def record(tests: Sequence[str]) -> None:
    """Run tests under coverage, each line with the tests that ran it: the quick ones, and all cases of those that compare with
    kept lines."""
    MAPS.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    data = MAPS / f"{commit}-{time.time_ns()}"
    settings = HOME / "coveragerc"
    sources = "\n    ".join(PRODUCT)
    settings.write_text(f"[run]\nrelative_files = True\nsource =\n    {sources}\ndata_file = {data}\n", "utf-8")
    options = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "auto", *options, *tests], cwd=ROOT, check=False)


def tests_of(mutant: Mutant, maps: Sequence[Map]) -> list[str]:
    """The tests that run the line, or what is nearest to it that any test runs; before its file existed, those of its function.
    Those that run few lines and share words with the place come first, of the cases of one function, and of the tests that run
    the same lines of the file, few before the first of others. Every other one compares with kept lines."""
    for places in lines_of(mutant):
        tests = {test for each in maps for path, lines in places.items() for test in each.tests(path, lines)}
        if mutant.path in places:
            older = [each for each in maps if not each.has(mutant.path)]
            tests |= {test for each in older for name in _functions_at(mutant) for test in each.of_function(name)}
        if tests:
            break
    sizes = {test: max(each.sizes[test] for each in maps) for test in tests if (ROOT / test.partition("::")[0]).is_file()}
    wanted = _words_of(mutant)
    seen: Counter[str] = Counter()
    ways = {test: way for each in maps for test, way in each.ways(mutant.path).items()}
    order = {}
    for test in sorted(sizes, key=lambda test: (sizes[test], test)):
        function, way = test.partition("[")[0], f"{ways.get(test, 0):x}"
        seen.update((function, way))
        order[test] = sizes[test] * seen[function] * seen[way] / SHARED ** len(wanted & _words(test))
    ordered = sorted(order, key=order.__getitem__)
    kept, others = ([test for test in ordered if bool(KEPT.match(test)) is is_kept] for is_kept in (True, False))
    pairs = itertools.chain.from_iterable(itertools.zip_longest(others, kept))
    found = [test for test in pairs if test is not None]
    places = [place for beginning, place in IN_CHILDREN.items() if mutant.path.startswith(beginning)]
    others = [file for place in places for file in _test_files(place)]
    return [*found[:FIRST], *others, *found[FIRST:MOST]]


def _test_files(place: str) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / place).rglob("test_*.py"))] or [place]


def _functions_at(mutant: Mutant) -> list[str]:
    """The names of the functions around a change, the inner ones last."""
    tree = ast.parse((ROOT / mutant.path).read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [node.name for node in functions if node.lineno <= mutant.line <= (node.end_lineno or 0)]


def _words_of(mutant: Mutant) -> frozenset[str]:
    """The words of a file's name, of the function around a change, and of its line."""
    text = (ROOT / mutant.path).read_text("utf-8")
    around = [
        node.name for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    return _words(" ".join([Path(mutant.path).stem, *around, text.splitlines()[mutant.line - 1]]))


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in re.findall(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}", text)) - COMMON


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or draw, as asked; 1 if too few changes were noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--map", action="store_true", help="record which tests run which lines")
    parser.add_argument("--tests", help="the tests to record or to run, separated by commas")
    parser.add_argument("--count", type=int, default=150, help="how many changes are drawn")
    parser.add_argument("--seed", type=int, help="what they are drawn by; by default something new each time")
    parser.add_argument("--under", default=",".join(PRODUCT), help="the folders that are changed, separated by commas")
    parser.add_argument("--at", help="the lines whose changes are tried, as FILE:LINE, separated by commas")
    asked = parser.parse_args(arguments)
    tests = asked.tests.split(",") if asked.tests else None
    is_new = asked.map or not (tests or any(MAPS.glob("*-*")))
    if is_new:
        record(tests or ["tests"])
    if not tests:
        kept = [path.as_posix() for path in sorted(Path("tests").rglob("test_*.py")) if KEPT.match(f"{path}::")]
        known = set() if is_new else {test.partition("::")[0] for path in MAPS.glob("*-*") for test in Map(path).sizes}
        if not known.issuperset(kept):
            record(["-m", "", *[path for path in kept if path not in known]])
    if asked.map:
        return 0
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    every = every_mutant(asked.under.split(","))
    if asked.at:
        places = set(asked.at.split(","))
        chosen = [mutant for mutant in every if f"{mutant.path}:{mutant.line}" in places]
    else:
        chosen = random.Random(seed).sample(every, min(asked.count, len(every)))
    maps = [] if tests else [Map(path) for path in sorted(MAPS.glob("*-*"))]
    copy_tree()
    unnoticed = tried({mutant: tests or tests_of(mutant, maps) for mutant in chosen})
    share = 1 - len(unnoticed) / max(1, len(chosen))
    print(f"seed {seed}: {share:.1%} of {len(chosen)} changes were noticed; {WANTED:.0%} are asked for")
    for mutant in unnoticed:
        text = (ROOT / mutant.path).read_text("utf-8")
        print("".join(difflib.unified_diff(text.splitlines(True), mutant.apply(text).splitlines(True), mutant.path, n=0)))
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
