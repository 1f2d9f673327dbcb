"""What `make demo` ends with: a page, and three commands that work when they are pasted."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from partita import demo

ROOT = Path(__file__).resolve().parent.parent


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def commands() -> list[str]:
    return [line.strip() for line in demo.next_steps() if line.startswith("     ")]


def test_it_names_the_page_and_three_things_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = demo.next_steps()
    assert lines[1].startswith(f"== Open {(tmp_path / 'resnet50.html').as_uri()} in a browser")
    assert len(commands()) == 3


def test_the_command_is_as_short_as_it_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "my env" / "bin"
    programs.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.chdir(tmp_path)
    assert commands()[0].startswith("'my env/bin/python' -m partita explain ")
    (programs / "partita").touch()
    assert commands()[0].startswith("'my env/bin/partita' explain ")
    monkeypatch.chdir("/")
    assert shlex.split(commands()[0])[0] == str(programs / "partita").lstrip("/")


@pytest.mark.parametrize("number", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_is_pasted_works(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = commands()[number]
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    words = shlex.split(command)
    for option in ("-o", "--report"):
        if option in words:
            assert (tmp_path / words[words.index(option) + 1]).stat().st_size > 10_000


@pytest.mark.slow
def test_the_whole_demo_writes_its_page(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "partita.demo"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-6:]
    assert [line.endswith(command) for line, (_, command) in zip(last[1::2], demo.NEXT, strict=True)] == [True, True, True]
    assert (tmp_path / "resnet50.html").stat().st_size > 100_000


def test_it_says_what_the_cache_had_to_do_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for before, now, words in ((0, 0, "not kept"), (2, 2, "read from the cache"), (2, 3, "compiled now, and kept in the cache")):
        monkeypatch.setattr(demo, "list_entries", lambda count=now: [None] * count)
        assert words in demo.where_from(before)
