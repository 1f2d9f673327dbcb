"""The tool that changes the product by chance: what it changes, and what it counts as noticed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from partita.passes.python_child import environment
from tests.mutants import changes

SOURCE = '''\
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    LIMIT = 1

MOST, SIZE = 3, 400

@attrs.frozen(slots=True)
class Pair:
    first: tuple[int, 2] = attrs.field(default=4, repr=False)

def least(a: "1 < 2", b: int = 5) -> int:
    """1 < 2"""
    assert a < b or True
    return a if a < b else b

def both(a, b):
    return [x + y for x, y in zip(a, b, strict=True)]
'''

TESTS = """
from graph.small import MOST, both, least

def test_a(): assert least(1, 2) == 1
def test_b(): assert least(1, 1) == 1
def test_c(): assert MOST == 3
def test_d(): assert 1 == 2
"""


def lay_out(folder: Path) -> None:
    (folder / "graph").mkdir()
    (folder / "graph" / "small.py").write_text(SOURCE)


def test_what_has_no_effect_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path)
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    listed = sorted(str(mutant).removeprefix("graph/small.py:") for mutant in changes.mutants_of(tmp_path / "graph" / "small.py"))
    assert listed == [
        "12: 4 -> (5)", "14: 5 -> (6)", "17: a < b -> (a <= b)", "17: a if a < b else b -> (b)", "20: x + y -> (x - y)",
        "8: 3 -> (4)", "8: 400 -> (800)",
    ]
    for mutant in changes.mutants_of(tmp_path / "graph" / "small.py"):
        changed = mutant.apply(SOURCE)
        assert changed.count(mutant.after) == 1 and changed.count("\n") == SOURCE.count("\n")


@pytest.mark.slow
@pytest.mark.parametrize("is_recorded", [False, True])
def test_what_tests_notice_and_what_they_do_not(tmp_path: Path, is_recorded: bool) -> None:
    lay_out(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    (tmp_path / "graph" / "__init__.py").touch()
    (tmp_path / "tests" / "test_small.py").write_text(TESTS)
    shutil.copytree(Path(changes.__file__).parent, tmp_path / "tests" / "mutants", ignore=shutil.ignore_patterns("__pycache__"))
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)

    def mutants(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.mutants", *options]
        return subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)

    named = ["--tests", "tests/test_small.py"]
    if is_recorded:
        mutants("--map", *named)
    places = ",".join(f"graph/small.py:{line}" for line in (8, 17, 20))
    run = mutants("--under", "graph", "--at", places, *([] if is_recorded else named))
    lines = [line.split(": ") for line in run.stdout.splitlines() if ": graph/small.py:" in line]
    noticed = {change: verdict for _, _, change, verdict in lines}
    unnoticed = f"unnoticed ({'2 of 2' if is_recorded else '3 of 4'} tests pass)"
    by_a = "noticed by tests/test_small.py::test_a"
    assert noticed == {
        "3 -> (4)": unnoticed if is_recorded else by_a,  # No test that reads the constant calls a function.
        "400 -> (800)": unnoticed,
        "a if a < b else b -> (b)": by_a,
        "a < b -> (a <= b)": unnoticed,
        "x + y -> (x - y)": unnoticed,
    }
    assert is_recorded or "fails without any change: tests/test_small.py::test_d" in run.stdout
    assert run.returncode == 1 and f"{20 if is_recorded else 40}.0% of 5 changes were noticed" in run.stdout
    assert (tmp_path / "graph" / "small.py").read_text() == SOURCE
