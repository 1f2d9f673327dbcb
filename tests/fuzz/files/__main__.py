"""Files made wrong, for every reader: python -m tests.fuzz.files --count 10000

Each must be read, or be refused by one PartitaError, within 10 seconds and 500 MB and ten times the file's size, and nothing
outside may be opened. What is found is cut down and printed."""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.fuzz.children import Child
from tests.fuzz.files.readers import READERS, Files, mutated

BATCH = 50
"""How many files are tried at once."""

PATIENCE = 120.0
"""Seconds for a batch: one that takes longer hangs."""

ATTEMPTS = 150
"""How often a file is cut to find a smaller one."""


@attrs.define
class Tally:
    """What was tried."""

    tried: Counter[str] = attrs.Factory(Counter)
    read: Counter[str] = attrs.Factory(Counter)
    """How many of these were read in spite of the changes."""
    findings: list[tuple[str, int, str]] = attrs.Factory(list)
    """What went wrong, for each reader and seed."""


class Campaign:
    """Files by reader and seed, in a child process."""

    def __init__(self, shrinks: bool = True) -> None:
        self.tally = Tally()
        self.shrinks = shrinks
        """Is what fails cut down?"""
        self._folder = tempfile.TemporaryDirectory(prefix="partita-fuzz-")
        self._child = Child("tests.fuzz.files.child", "findings", [self._folder.name], renewed_after=200)
        self._met: set[tuple[str, str]] = set()

    def try_seeds(self, name: str, first: int, count: int) -> None:
        """Try so many files on a reader."""
        while count > 0:
            size = min(BATCH, count)
            answer = self._child.ask({"reader": name, "first": first, "count": size}, PATIENCE)
            if answer.last is not None:
                done, self.tally.read[name] = size, self.tally.read[name] + answer.last["read"]
                listed = [(seed, what) for seed, what in answer.last["findings"]]
            else:
                at = self._at(first)
                done, listed = at - first + 1, [(at, f"it {answer.end}: {answer.printed.strip()}")]
            self.tally.tried[name] += done
            for seed, what in listed:
                self._report(name, seed, what)
            first, count = first + done, count - done

    def close(self) -> None:
        """End the child."""
        self._child.close()
        self._folder.cleanup()

    def _at(self, first: int) -> int:
        text = (Path(self._folder.name) / "at").read_text().strip()
        return max(first, int(text)) if text else first

    def _report(self, name: str, seed: int, what: str) -> None:
        self.tally.findings.append((name, seed, what))
        kind = (name, re.sub(r"[^a-zA-Z ]|/tmp/[^ ]*", "", what)[:60])
        if kind in self._met:
            return
        self._met.add(kind)
        files = mutated(name, seed)
        if self.shrinks:
            files = self._shrunk(name, files, what.partition(":")[0])
        print(f"-- {name}, seed {seed}: {what}", flush=True)
        for key, data in files.items():
            print(f"   {key}, {len(data)} bytes: {data[:600]!r}", flush=True)

    def _shrunk(self, name: str, files: Files, kind: str) -> Files:
        """Smaller files that fail in the same way: pieces are left out, large ones first."""
        left = ATTEMPTS
        for key in files:
            size = len(files[key]) // 2
            while size and left:
                start = 0
                while start < len(files[key]) and left:
                    data = files[key]
                    smaller = {**files, key: data[:start] + data[start + size :]}
                    left -= 1
                    if self._fails(name, smaller, kind):
                        files = smaller
                    else:
                        start += size
                size //= 2
        return files

    def _fails(self, name: str, files: Files, kind: str) -> bool:
        coded = {key: base64.b64encode(data).decode() for key, data in files.items()}
        answer = self._child.ask({"reader": name, "files": coded}, PATIENCE)
        if answer.last is None:
            return f"it {answer.end}" == kind
        return any(what.partition(":")[0] == kind for _, what in answer.last["findings"])


def guided(names: Sequence[str], seconds: float, seed: int) -> int:
    """Have atheris look for files, for so long in all; what it finds is printed. 1 if anything was found."""
    status = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="partita-guided-") as folder:
            share = max(1, round(seconds / len(names)))
            command = [sys.executable, "-m", "tests.fuzz.files.guided", folder, name, str(share), str(seed)]
            done = subprocess.run(command, capture_output=True, check=False, timeout=share + 600)
            notes = Path(folder) / "found"
            result = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
            artifacts = [path for path in Path(folder).iterdir() if path.name.startswith(("crash-", "timeout-", "oom-"))]
            tried = Path(folder) / "tried"
            count = int(tried.read_text()) if tried.exists() else 0
            print(f"{name}: {count} files in {share} s, {len(result)} kinds wrong", flush=True)
            for note in result:
                print(f"-- {name}: {note['what']}\n   {base64.b64decode(note['file'])[:600]!r}", flush=True)
            for path in artifacts:
                print(f"-- {name}: it ended ({path.name})\n   {path.read_bytes()[:600]!r}", flush=True)
            if done.returncode and not artifacts:
                print(f"-- {name}: it ended with {done.returncode}\n{done.stderr.decode(errors='replace')[-2000:]}", flush=True)
            status |= bool(result or artifacts or done.returncode)
    return status


def main() -> int:
    """Try so many files of each reader, or for so many seconds; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.files", description=__doc__)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10_000, help="how many files for each reader")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--readers", default=",".join(READERS), help="some of: " + ", ".join(READERS))
    parser.add_argument("--guided", type=float, metavar="SECONDS", help="guided by coverage, for so long (needs atheris)")
    options = parser.parse_args()
    if options.guided is not None:
        if importlib.util.find_spec("atheris") is None:
            parser.error("--guided needs atheris, which is not installed: pip install 'partita[fuzz]'")
        compile_none = [name for name in options.readers.split(",") if not READERS[name].compiles]
        return guided(compile_none, options.guided, options.start)
    campaign, start = Campaign(), time.monotonic()
    for first in range(options.start, options.start + options.count, 500):
        for name in options.readers.split(","):
            if time.monotonic() - start < options.seconds:
                campaign.try_seeds(name, first, min(500, options.start + options.count - first))
    campaign.close()
    tally = campaign.tally
    print(f"{sum(tally.tried.values())} files from seed {options.start}, {time.monotonic() - start:.0f} s")
    for name, count in tally.tried.items():
        print(
            f"  {name}: {count} tried, {tally.read[name]} read, {sum(n == name for n, _, _ in tally.findings)} wrong"
        )
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
