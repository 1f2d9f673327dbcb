"""Mutation testing: small changes to the product's code, drawn by chance, each of which some test has to notice.

    python -m tests.mutants --map            record which tests run which lines (the quick tests once, under coverage)
    python -m tests.mutants --count 150      draw so many changes, run the tests of the changed line, list what nobody noticed

`--under graph,passes` draws from these folders alone and `--tests` records these tests alone. The changed tree is a copy; the
checkout stays as it is. Needs the extra `mutants`."""

from __future__ import annotations

import argparse
import ast
import difflib
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "mutants"
TREE = HOME / "tree"
MAP = HOME / "coverage"
PRODUCT = ("graph", "passes", "partition", "accelerators", "partita")

WANTED = 0.92
"""The share of changes that tests have to notice."""

SECONDS = 300.0
"""The time that the tests of one change may take; a change that makes them take longer is noticed."""

MOST = 400
"""The number of tests that run for one change, those of the fewest lines first."""

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
    for node in ast.walk(ast.parse(text)):
        changed = _changed(node)
        if changed is None or not isinstance(node, ast.expr) or node.end_lineno != node.lineno:
            continue
        line = lines[node.lineno - 1].encode()
        first, last = (len(line[:offset].decode()) for offset in (node.col_offset, node.end_col_offset or 0))
        start = starts[node.lineno - 1]
        yield Mutant(name, node.lineno, text[start + first : start + last], f"({ast.unparse(changed)})", start + first)


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
            return ast.Constant(node.value + 1)
        case ast.IfExp():
            return node.orelse
    return None


def _is_text(node: ast.BinOp) -> bool:
    texts = (inner for inner in ast.walk(node) if isinstance(inner, (ast.Constant, ast.JoinedStr)))
    return any(not isinstance(getattr(text, "value", ""), (int, float)) for text in texts)


def drawn(count: int, seed: int, under: Sequence[str]) -> list[Mutant]:
    """So many changes by chance, each place as likely as any other."""
    files = sorted(path for folder in under for path in (ROOT / folder).rglob("*.py"))
    every = [mutant for path in files for mutant in mutants_of(path)]
    return random.Random(seed).sample(every, min(count, len(every)))


def record(tests: Sequence[str]) -> None:
    """Run the quick tests under coverage, each line with the tests that ran it."""
    HOME.mkdir(parents=True, exist_ok=True)
    settings = HOME / "coveragerc"
    sources = "\n    ".join(str(ROOT / folder) for folder in PRODUCT)
    settings.write_text(f"[run]\nsource =\n    {sources}\ndata_file = {MAP}\n", "utf-8")
    options = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "auto", *options, *tests], cwd=ROOT, check=False)


def tests_of(mutant: Mutant) -> list[str]:
    """The tests that ran the line, those that run the fewest lines first."""
    from coverage.numbits import numbits_to_nums

    asked = (
        "select context.context, line_bits.numbits, context.id from line_bits join file on file.id = file_id "
        "join context on context.id = context_id where file.path = ?"
    )
    with sqlite3.connect(MAP) as data:
        rows = data.execute(asked, (str(ROOT / mutant.path),)).fetchall()
        names = {number: name.partition("|")[0] for name, bits, number in rows if mutant.line in numbits_to_nums(bits)}
        asked = "select sum(length(numbits)) from line_bits where context_id = ?"
        lines = {number: data.execute(asked, (number,)).fetchone()[0] for number in names}
    by_lines = sorted(names, key=lines.__getitem__)
    return list(dict.fromkeys(names[number] for number in by_lines if names[number]))[:MOST]


def passes(tests: Sequence[str]) -> bool:
    """True if all these tests pass in the copied tree, in time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--no-header", *tests]
    try:
        return subprocess.run(command, cwd=TREE, capture_output=True, timeout=SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def survives(mutant: Mutant) -> str | None:
    """Why nothing noticed the change; None if a test did."""
    tests = tests_of(mutant)
    if not tests:
        return "no test runs the line"
    path = TREE / mutant.path
    original = path.read_text("utf-8")
    path.write_text(mutant.apply(original), "utf-8")
    try:
        return f"{len(tests)} tests pass" if passes(tests) else None
    finally:
        path.write_text(original, "utf-8")


def copy_tree() -> None:
    """The files that git knows, beside the checkout."""
    shutil.rmtree(TREE, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or draw, as asked; 1 if too few changes were noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--map", action="store_true", help="record which tests run which lines")
    parser.add_argument("--tests", default="tests", help="the tests to record, separated by commas")
    parser.add_argument("--count", type=int, default=150, help="how many changes are drawn")
    parser.add_argument("--seed", type=int, help="what they are drawn by; by default something new each time")
    parser.add_argument("--under", default=",".join(PRODUCT), help="the folders that are changed, separated by commas")
    asked = parser.parse_args(arguments)
    if asked.map or not MAP.exists():
        record(asked.tests.split(","))
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    copy_tree()
    unnoticed, begun = [], time.monotonic()
    chosen = drawn(asked.count, seed, asked.under.split(","))
    if not passes(list(dict.fromkeys(test for mutant in chosen[:3] for test in tests_of(mutant)))):
        print("the tests fail, or take too long, without any change", file=sys.stderr)
        return 2
    for number, mutant in enumerate(chosen, 1):
        why = survives(mutant)
        if why is not None:
            unnoticed.append(mutant)
            print(f"unnoticed ({why}): {mutant}", flush=True)
        print(f"{number} of {len(chosen)}, {number - len(unnoticed)} noticed, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    share = 1 - len(unnoticed) / max(1, len(chosen))
    print(f"seed {seed}: {share:.1%} of {len(chosen)} changes were noticed; {WANTED:.0%} are asked for")
    for mutant in unnoticed:
        text = (ROOT / mutant.path).read_text("utf-8")
        print("".join(difflib.unified_diff(text.splitlines(True), mutant.apply(text).splitlines(True), mutant.path, n=0)))
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
