"""The process in which files are read: python -m tests.fuzz.files.child FOLDER

Reads requests as lines of JSON (a reader and some seeds, or a reader and files) and answers each with what was found. The number
that it is at stands in FOLDER/at, for when it does not come back."""

from __future__ import annotations

import base64
import gc
import json
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partita.graph.errors import PartitaError
from tests.fuzz.files.fence import SECONDS, Fence, spent
from tests.fuzz.files.readers import READERS, Files, mutated


class Tester:
    """Reads files behind a fence."""

    def __init__(self, folder: Path) -> None:
        self._inner = folder / "files"
        self._at = os.open(folder / "at", os.O_CREAT | os.O_RDWR)
        self._warm: set[str] = set()
        self._there: set[str] = set()
        """The files in the folder now."""
        os.environ["TMPDIR"] = os.environ["XDG_CACHE_HOME"] = str(folder)
        self.fence = Fence(folder)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What was found: by number, what went wrong, and how many files were read without an error."""
        name = request["reader"]
        self._warm_up(name)
        if "files" in request:
            files = {key: base64.b64decode(text) for key, text in request["files"].items()}
            return {"findings": [(0, result)] if (result := self.tried(name, files)[0]) else [], "read": 0}
        findings, read = [], 0
        for seed in range(request["first"], request["first"] + request["count"]):
            os.pwrite(self._at, f"{seed:20}".encode(), 0)
            result, was_read = self.tried(name, mutated(name, seed))
            read += was_read
            if result is not None:
                findings.append((seed, result))
        return {"findings": findings, "read": read}

    def tried(self, name: str, files: Files) -> tuple[str | None, bool]:
        """What went wrong with the files, and whether they were read."""
        self._write(files)
        size, start, wrong, was_read = sum(map(len, files.values())), spent(), None, False
        with self.fence.armed(size, READERS[name].compiles):
            try:
                READERS[name].read(self._inner)
                was_read = True
            except PartitaError as error:
                wrong = None if str(error).strip() else "an error that says nothing"
            except BaseException as error:  # noqa: BLE001  (whatever it is, it is what the fuzzer looks for)
                frames = traceback.extract_tb(error.__traceback__)[-4:]
                where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
                wrong = f"{type(error).__name__}: {error!s:.300} ({where})"
        took = spent() - start
        if took > SECONDS:
            wrong = f"it took {took:.0f} s"
        if self.fence.seen:
            wrong = f"it did what it may not: {'; '.join(self.fence.seen[:3])}"
        return wrong, was_read

    def _write(self, files: Files) -> None:
        """The folder with these files and no others: what is there is written over, which is faster than a new folder."""
        if self._there != files.keys() or sorted(os.listdir(self._inner)) != sorted(files):
            shutil.rmtree(self._inner, ignore_errors=True)
            for key in files:
                (self._inner / key).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for key, data in files.items():
            with open(f"{self._inner}/{key}", "wb") as file:
                file.write(data)
        self._there = set(files)

    def _warm_up(self, name: str) -> None:
        """Real files first, so that what is imported for the first time is not taken for something opened."""
        if name in self._warm:
            return
        self._warm.add(name)
        for files in (READERS[name].samples()[0], *(mutated(name, -seed) for seed in range(1, 30))):
            self.tried(name, files)
        gc.collect()


def main() -> None:
    """Serve until the input ends. What libraries print goes to the error stream."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    tester = Tester(Path(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(tester.answer(json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
