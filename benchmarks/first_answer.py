"""How long until the first answer: python -m benchmarks.first_answer [--models NAME ...] [--rounds N] [--tiny]

Seconds from before the import of the package to the first output, in a fresh process with an empty cache: Partita with
START=now, which answers on the engine that starts fastest while it compiles, and onnxruntime by itself. Both take turns, and
the first turn does not count; the processor's seconds, of all threads, too. `parts` says where Partita's seconds go: the import,
compile (of the file), and the call. Then the calls go on without a pause, for `ready` seconds until the kernels have taken over.
`99th / engine` is the 99th percentile of all calls from the first answer to a second after the change, over that of onnxruntime's
own calls in the same process, when nothing else is done there; `99th / kernels` that of the calls of the last second before the
change and the first after, over that of as many calls later."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.answering import PARTS
from benchmarks.machine import machine_name, processor
from benchmarks.models import NAMES, model
from benchmarks.processes import module_command, run_json
from benchmarks.progress import run

MODELS = ("resnet50", "bert", "mobilenet_v2")
"""Measured unless others are named."""

SECONDS = 600.0
"""The seconds that one process may take."""


def main() -> None:
    """A table of the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="one small model, one round, to see that it works")
    args = parser.parse_args()
    names, rounds = (("squeezenet",), 1) if args.tiny else (args.models, args.rounds)
    ratios = f"s | / onnxruntime | processor s | / onnxruntime | parts: {', '.join(PARTS)}"
    columns = f"| model | {ratios} | ready s | 99th / engine | 99th / kernels |"
    print(f"{processor()} ({machine_name()})\n\n{columns}\n|{'---|' * 9}")
    for name in names:
        print(measured(name, rounds), flush=True)


def measured(name: str, rounds: int) -> str:
    """A row: both in turns."""
    given = model(name, 1)
    answers: dict[str, list[dict[str, float]]] = {"partita": [], "onnxruntime": []}
    with tempfile.TemporaryDirectory(prefix="partita-bench-") as bytecode:
        for _ in range(rounds + 1):
            with tempfile.TemporaryDirectory(prefix="partita-bench-") as folder:
                np.savez(Path(folder) / "inputs.npz", **given.inputs())  # type: ignore[arg-type]
                for engine, said in answers.items():
                    words = [engine, str(given.path), folder]
                    said.append(run_json(module_command("benchmarks.answering", words), SECONDS, installed(bytecode)))
    ours, theirs = (said[1:] for said in answers.values())
    columns = []
    for what in ("seconds", "processor"):
        pairs = [(our[what], their[what]) for our, their in zip(ours, theirs, strict=True)]
        columns.append(f"{statistics.median(our for our, _ in pairs):.2f} | {statistics.median(a / b for a, b in pairs):.2f}")
    parts = " ".join(f"{statistics.median(one[part] for one in ours):.2f}" for part in PARTS)
    late = [statistics.median(one[what] for one in ours) for what in ("ready", "all", "late")]
    return f"| {name} | {' | '.join(columns)} | {parts} | {' | '.join(f'{number:.2f}' for number in late)} |"


def installed(folder: str) -> dict[str, str]:
    """The environment of a process that finds bytecode, as it does in an installed package; the first that runs writes it."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}


if __name__ == "__main__":
    run(main)
