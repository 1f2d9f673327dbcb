"""A record of the functions that each test calls, and the tests that may notice a change, likeliest first."""

from __future__ import annotations

import ast
import difflib
import itertools
import keyword
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from tests.mutants.changes import PRODUCT, ROOT, Mutant

HOME = ROOT / "build" / "mutants"
MAPS = HOME / "maps"

MOST = 400
"""The number of tests that run for one change."""

FIRST = 12
"""The number of tests that run first for a change that needs a new process."""

SHARED = 4
"""The factor by which a test may run more lines for each word that it shares with the place of a change."""

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
    """Run tests, each with the functions that it calls: the quick ones, and all cases of those that compare with kept lines."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-p", "tests.mutants.recording", *tests]
    subprocess.run(command, cwd=ROOT, check=False)


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
