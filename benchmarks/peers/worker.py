"""An engine in a process of its own: python -m benchmarks.peers.worker ENGINE PATH MODEL BATCH THREADS FOLDER [--outputs]

FOLDER holds inputs.npz. With --outputs the outputs are computed before it says that it is ready. Each line that comes in is
answered by one of JSON that goes out: "outputs" computes them into
outputs.npz, a number runs the model so many times and returns the seconds of each."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np

from benchmarks.timing import clocked
from partita.measuring.rounds import settle


def main() -> None:
    """Load, say so, and answer until the input ends."""
    engine, path, model, batch, threads, folder_name, *options = sys.argv[1:]
    folder = Path(folder_name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an engine prints must not mix with the answers

    def answer(value: object) -> None:
        print(json.dumps(value), file=answers, flush=True)

    with np.load(folder / "inputs.npz") as held:
        inputs = dict(held)
    call = importlib.import_module(f"benchmarks.peers.{engine}").load(path, (model, int(batch)), int(threads))
    if options:
        np.savez(folder / "outputs.npz", *call(inputs))
    answer("ready")
    for line in sys.stdin:
        if line.strip() == "outputs":
            np.savez(folder / "outputs.npz", *call(inputs))
            answer("done")
            continue
        taken = clocked(lambda: call(inputs))(int(line))
        settle()  # ends the engine's threads, so that they do not disturb the next one
        answer(taken)


if __name__ == "__main__":
    main()
