"""A plugin of pytest that records which tests run which functions: `-p tests.mutants.recording`.

Only calls are traced, which costs a fraction of tracing lines, so that any run of all tests can record on the way. Each process
writes a map of its own, in the tables that `coverage` has: a function stands for all of its lines."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.mutants.changes import PRODUCT, ROOT
from tests.mutants.maps import MAPS

TABLES = """
create table file (id integer primary key, path text);
create table context (id integer primary key, context text);
create table line_bits (file_id integer, context_id integer, numbits blob);
"""


class Recording:
    """The functions that each test calls."""

    def __init__(self) -> None:
        MAPS.mkdir(parents=True, exist_ok=True)
        command = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        self._data = sqlite3.connect(MAPS / f"{commit}-{time.time_ns()}", isolation_level=None)
        self._data.executescript(f"pragma journal_mode = off; pragma synchronous = off; {TABLES} begin;")
        self._called: dict[int, CodeType] = {}
        """By identity, since the hash of code takes long."""
        self._files: dict[str, int] = {}
        self._places: dict[int, tuple[CodeType, tuple[int, int] | None]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Trace the calls of one test."""
        called, before = self._called, sys.gettrace()
        called.clear()

        def note(frame: FrameType, event: str, argument: object) -> None:
            called[id(frame.f_code)] = frame.f_code

        threading.settrace(note)
        sys.settrace(note)
        try:
            return (yield)
        finally:
            sys.settrace(before)
            threading.settrace(None)  # type: ignore[arg-type]
            self._write(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        """End the map."""
        self._data.execute("create index of_file on line_bits (file_id)")
        self._data.execute("commit")
        self._data.close()

    def _write(self, test: str) -> None:
        lines: dict[int, int] = {}
        for key, code in list(self._called.items()):
            if key not in self._places:
                self._places[key] = code, self._place(code)
            place = self._places[key][1]
            if place is not None:
                lines[place[0]] = lines.get(place[0], 0) | place[1]
        number = self._data.execute("insert into context (context) values (?)", (test,)).lastrowid
        rows = [(file, number, bits.to_bytes(bits.bit_length() // 8 + 1, "little")) for file, bits in lines.items()]
        self._data.executemany("insert into line_bits values (?, ?, ?)", rows)

    def _place(self, code: CodeType) -> tuple[int, int] | None:
        """The number of a function's file, and its lines as bits; None for what is no function of the product."""
        path = os.path.relpath(os.path.realpath(code.co_filename), ROOT)
        if path.split(os.sep)[0] not in PRODUCT or code.co_name == "<module>":
            return None
        if path not in self._files:
            self._files[path] = self._data.execute("insert into file (path) values (?)", (path,)).lastrowid or 0
        return self._files[path], sum(1 << line for line in {line for _, _, line in code.co_lines() if line})


def pytest_configure(config: pytest.Config) -> None:
    """Record where tests run: in the workers if there are any."""
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Recording(), "recording")
