"""Mutation testing: small changes to the product's code, drawn by chance, each of which some test has to notice.

    python -m tests.mutants --map                    record which tests run which functions (once)
    python -m tests.mutants --map --tests tests/cli  record these tests once more, as they are now
    python -m tests.mutants --map "--tests=-m,slow,tests/microsoft"         record slow ones too
    python -m tests.mutants --count 150              draw so many changes, run the tests of each, list those that nobody noticed
    python -m tests.mutants --at passes/manager.py:31       all changes of one line (with --tests: held against these tests)

`--under graph,passes` draws from these folders alone. A map belongs to the commit that was checked out when it was recorded;
lines are found again in later ones, and new files of kept lines are recorded before a draw. The changed tree is a copy; the
checkout stays as it is. A run of all tests records on the way with `-p tests.mutants.recording`."""

from __future__ import annotations

import argparse
import difflib
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.changes import PRODUCT, ROOT, every_mutant
from tests.mutants.maps import KEPT, MAPS, Map, record, tests_of
from tests.mutants.trials import copy_tree, tried

WANTED = 0.92
"""The share of changes that tests have to notice."""


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
