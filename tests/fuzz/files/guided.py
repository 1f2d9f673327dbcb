"""Files that are changed wherever that leads to code not yet seen: python -m tests.fuzz.files.guided FOLDER READER SECONDS SEED

The process that `python -m tests.fuzz.files --guided` starts for each reader. It needs atheris (the extra `fuzz`), which counts
what of Partita's Python code a file reaches, keeps files that reach more, and changes those again: by its own means, or by ours.
Behind the same fence as all files; FOLDER/found gets a line for each kind of failure, FOLDER/tried the number of files."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import sys
import warnings
from pathlib import Path

import atheris  # type: ignore[import-not-found, unused-ignore]

with atheris.instrument_imports(include=["partita"]):
    from tests.fuzz.files.child import Tester
    from tests.fuzz.files.readers import READERS, Files, samples_of

LONGEST = 1 << 15
"""Bytes of a file."""

FIRST = 150
"""The number of real files that it begins with."""


class Guided:
    """One reader under atheris."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.sample = samples_of(name)[0]
        self.main = main_file(self.sample)
        self.tester = Tester(folder)
        self._met: set[str] = set()
        self._tried = 0
        self._count = os.open(folder / "tried", os.O_CREAT | os.O_RDWR)
        with atheris.instrument_imports(include=["partita"]):
            self.tester.answer({"reader": name, "first": 0, "count": 1})

    def run(self, seconds: int, seed: int) -> None:
        """Go on for so long; atheris ends the process."""
        corpus = self.folder / "corpus"
        corpus.mkdir()
        samples = samples_of(self.name)
        for number, files in enumerate(random.Random(seed).sample(samples, min(len(samples), FIRST))):
            (corpus / str(number)).write_bytes(files[main_file(files)])
        options = [
            f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={LONGEST}", "-rss_limit_mb=0", "-timeout=120",
            "-verbosity=0", f"-artifact_prefix={self.folder}/", str(corpus),
        ]
        atheris.Setup([sys.argv[0], *options], self.read, custom_mutator=self.changed)
        atheris.Fuzz()

    def read(self, data: bytes) -> None:
        """One file; what goes wrong is noted, and the next one follows."""
        self._tried += 1
        os.pwrite(self._count, f"{self._tried:12}".encode(), 0)
        result, _ = self.tester.tried(self.name, {**self.sample, self.main: data})
        kind = re.sub(r"[^a-zA-Z ]|/tmp/[^ ]*", "", result or "")[:60]
        if result is not None and kind not in self._met:
            self._met.add(kind)
            with open(self.folder / "found", "a") as file:
                file.write(json.dumps({"what": result, "file": base64.b64encode(data).decode()}) + "\n")

    def changed(self, data: bytes, longest: int, seed: int) -> bytes:
        """The file with something changed: bytes by atheris, or what is written in it by the reader's own changes."""
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, longest))
        files: Files = {**self.sample, self.main: data}
        try:
            return READERS[self.name].change(files, rng)[self.main][:longest]
        except Exception:  # noqa: BLE001  what is damaged by now cannot be taken apart any more
            return bytes(atheris.Mutate(data, longest))


def main_file(files: Files) -> str:
    """The file that is changed, if there are several."""
    return min(files, key=lambda name: (not name.endswith((".onnx", ".json")), name))


def main() -> None:
    """Fuzz until the time is over."""
    warnings.simplefilter("ignore")
    folder, name, seconds, seed = sys.argv[1:5]
    os.dup2(2, 1)
    Guided(Path(folder), name).run(int(seconds), int(seed))


if __name__ == "__main__":
    main()
