"""One first answer, in a process that has imported nothing but numpy: python -m benchmarks.answering ENGINE MODEL FOLDER

`benchmarks.first_answer` starts it; FOLDER holds the inputs, and is to hold the cache."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

PARTS = ("import", "compile", "call")
"""Where the seconds of a first answer go."""

Inputs = Mapping[str, np.ndarray]


def main() -> None:
    """Print the seconds as JSON."""
    engine, path, folder = sys.argv[1:]
    with np.load(Path(folder) / "inputs.npz") as stored:
        inputs = {name: stored[name] for name in stored.files}
    said = of_partita(path, inputs, Path(folder)) if engine == "partita" else of_onnxruntime(path, inputs)
    print(json.dumps(said))


def of_onnxruntime(path: str, inputs: Inputs) -> dict[str, float]:
    """By onnxruntime itself."""
    start, used = time.perf_counter(), time.process_time()
    import onnxruntime

    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, dict(inputs))
    return {"seconds": time.perf_counter() - start, "processor": time.process_time() - used}


def of_partita(path: str, inputs: Inputs, folder: Path) -> dict[str, float]:
    """By START=now; then on, until the model's own kernels have answered for a while."""
    times, used = [time.perf_counter()], time.process_time()
    import partita as pt

    compile_model = pt.compile
    times.append(time.perf_counter())
    compiled = compile_model(path, "cpu", {"HETERO": {"START": "now"}, "cpu": {"CACHE_DIR": str(folder / "cache")}})
    times.append(time.perf_counter())
    compiled(dict(inputs))
    times.append(time.perf_counter())
    processor = time.process_time() - used
    parts = dict(zip(PARTS, np.diff(times).tolist(), strict=True))
    late = late_calls(lambda: compiled(dict(inputs)), compiled.ready.done)
    return {"seconds": times[-1] - times[0], "processor": processor, **parts, "late": late}


def late_calls(call: Callable[[], object], is_ready: Callable[[], bool]) -> float:
    """The 99th percentile of calls around the change, over that of as many calls later."""
    before: list[float] = []
    while not is_ready():
        before.append(_seconds(call))
    around = [*_last_second(before), *_for_a_second(call)]
    later = [_seconds(call) for _ in around]
    return float(np.percentile(around, 99) / np.percentile(later, 99))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _last_second(taken: Sequence[float]) -> list[float]:
    total, chosen = 0.0, list[float]()
    for seconds in reversed(taken):
        total += seconds
        if total > 1.0:
            break
        chosen.append(seconds)
    return chosen


def _for_a_second(call: Callable[[], object]) -> list[float]:
    taken: list[float] = []
    while sum(taken) < 1.0:
        taken.append(_seconds(call))
    return taken


if __name__ == "__main__":
    main()
