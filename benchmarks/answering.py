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

STEADY = 10.0
"""Seconds of calls that say what is steady. Fewer calls than all that went before have a lower 99th percentile, if another."""

Inputs = Mapping[str, np.ndarray]
Call = Callable[[], object]


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
    late = late_calls(lambda: compiled(dict(inputs)), compiled.ready.done, lambda: engine_call(path, inputs))
    return {"seconds": times[-1] - times[0], "processor": processor, **parts, **late}


def engine_call(path: str, inputs: Inputs) -> Call:
    """A call of onnxruntime itself, ready to be made again and again."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(inputs))


def late_calls(call: Call, is_ready: Callable[[], bool], engine: Callable[[], Call]) -> dict[str, float]:
    """The 99th percentile of calls around the change, over that of as many calls later; and that of all calls from the first
    answer to a second after the change, over the steady one of the engine that gave most of them."""
    before: list[float] = []
    while not is_ready():
        before.append(_seconds(call))
    after = _for_seconds(call, 1.0)
    around = [*_last_second(before), *after]
    later = [_seconds(call) for _ in around]
    steady_call = engine()
    steady_call()
    steady = _for_seconds(steady_call, STEADY)
    return {"late": _late(around) / _late(later), "all": _late([*before, *after]) / _late(steady), "ready": sum(before)}


def _late(seconds: Sequence[float]) -> float:
    return float(np.percentile(seconds, 99))


def _seconds(call: Call) -> float:
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


def _for_seconds(call: Call, seconds: float) -> list[float]:
    taken: list[float] = []
    while sum(taken) < seconds:
        taken.append(_seconds(call))
    return taken


if __name__ == "__main__":
    main()
