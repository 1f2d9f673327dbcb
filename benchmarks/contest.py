"""One model, batch and number of threads: fresh processes in which engines take turns, and what comes of them."""

from __future__ import annotations

import fcntl
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from benchmarks import results
from benchmarks.agreement import TOLERANCE, error
from benchmarks.contestants import Contest, Engine
from benchmarks.machine import OtherLoad
from benchmarks.models import Model
from benchmarks.processes import CutOff, Failed, run_together
from benchmarks.timing import Ratio, interleaved, ratio, summary

OURS, ORACLE = "partita", "onnxruntime"

CASE_LIMIT = 900.0
"""Seconds after which a process of a case is given up."""


@attrs.frozen
class Finding:
    """The measurement of one engine in one process."""

    engine: str
    """The engine's name."""
    seconds: list[float]
    """The seconds of each round; empty if the engine failed."""
    error: float | None
    """How far its outputs are from the reference."""
    missing: str = ""
    """Why it was not measured."""


def compete(
    engines: Mapping[str, Engine],
    case_model: Model,
    threads: int,
    inputs: Mapping[str, np.ndarray],
    reference: Sequence[np.ndarray],
    seconds: float,
    limit: float,
    gate: int | None = None,
) -> dict[str, Any]:
    """A finding for each engine on this model, in this process, as JSON. Without a reference, onnxruntime's outputs are it.

    Whoever was given a gate waits there once all is loaded, until no other process loads or measures."""
    with Contest(engines, case_model, threads, inputs, limit) as contest:
        contest.load()
        quick = [name for name in engines if name in contest.loaded and not engines[name].is_slow]
        slow = [name for name in contest.loaded if name not in quick]
        errors: dict[str, float] = {}
        for name in sorted(quick, key=lambda name: name != ORACLE):
            outputs = contest.attempt(name, contest.loaded[name].outputs) or ()
            reference = reference or outputs
            errors[name] = error(outputs, reference)
        if gate is not None:
            fcntl.flock(gate, fcntl.LOCK_EX)
        load = OtherLoad()
        times = interleaved({name: contest.loaded[name].seconds for name in quick if name in contest.loaded}, seconds, fewest=1)
        others = load.cores()
        for name in slow:
            began = time.perf_counter()
            outputs = contest.attempt(name, contest.loaded[name].outputs) or ()
            taken = time.perf_counter() - began
            errors[name] = error(outputs, reference)
            if name in contest.loaded:
                times[name] = [taken] if taken > limit / 4 else contest.loaded[name].seconds(2)
        missing = contest.missing
    said = [Finding(name, times.get(name, []), errors.get(name), missing.get(name, "")) for name in contest.engines]
    return {"findings": list(map(attrs.asdict, said)), "others_cores": others}


def run_case(
    case: dict[str, Any], engines: Mapping[str, Engine], command: Callable[[Sequence[str], int], list[str]], processes: int
) -> list[results.Row]:
    """The rows of a case, measured in so many fresh processes: all load at the same time, and then each measures alone.

    `command` makes the command of one, from the engines that it runs and the gate. A slow engine is in the first alone."""
    gates = closed_gates(processes)
    asked = [[name for name, engine in engines.items() if i == 0 or not engine.is_slow] for i in range(processes)]
    said = run_together(list(map(command, asked, gates)), CASE_LIMIT, given=gates)
    failed = next((one for one in said if isinstance(one, (CutOff, Failed))), None)
    if failed:
        return [results.Row(case, name, note=f"failed: {failed}") for name in engines]
    by_process = [{value["engine"]: Finding(**value) for value in one["findings"]} for one in said]
    extra = {"others_cores": max((one["others_cores"] or 0.0 for one in said), default=0.0)}
    return [row(case, name, by_process, extra) for name in engines]


def closed_gates(count: int) -> list[int]:
    """File descriptors of one file, each with a shared lock: who asks for an exclusive one waits until nobody else has any."""
    with tempfile.NamedTemporaryFile(prefix="partita-bench-") as file:
        gates = [os.open(file.name, os.O_RDWR) for _ in range(count)]
    for gate in gates:
        fcntl.flock(gate, fcntl.LOCK_SH)
    return gates


def row(case: dict[str, Any], name: str, by_process: Sequence[Mapping[str, Finding]], extra: dict[str, Any]) -> results.Row:
    """The row of one engine, from its measurements in all processes."""
    mine = [one[name] for one in by_process if name in one]
    missing = next((one.missing for one in mine if one.missing), "")
    if missing:
        return results.Row(case, name, note=missing)
    far = max(one.error or 0.0 for one in mine)
    note = "" if far <= TOLERANCE else f"wrong: {far:.0e}"
    against = None if name == OURS else over(by_process, name)
    return results.Row(case, name, summary([one.seconds for one in mine]), against, far, note, extra)


def over(by_process: Sequence[Mapping[str, Finding]], name: str) -> Ratio | None:
    """Our time over another's; one that took no turns is compared with the median of ours."""
    ours = [one[OURS].seconds for one in by_process if name in one and OURS in one and not one[OURS].missing]
    theirs = [one[name].seconds for one in by_process if name in one and OURS in one and not one[OURS].missing]
    if not ours:
        return None
    if [len(rounds) for rounds in ours] != [len(rounds) for rounds in theirs]:
        ours, theirs = ([[statistics.median(rounds)] for rounds in each] for each in (ours, theirs))
    return ratio(ours, theirs)
