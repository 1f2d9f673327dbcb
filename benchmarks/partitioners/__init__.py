"""The partitioners, one module each. Each runs in a process of its own, with its own environment's Python:

    python -m benchmarks.partitioners.NAME SHAPE.json

The file holds the shape as (preds, color); color None is a node that the device does not take. Printed is one line of JSON:
the seconds of each run, the number of groups, and "cyclic" where these depend on each other in a circle. This file and the
module for MXNet run on Python 3.8."""
# ruff: noqa: UP006, UP035, UP045 (the modern spellings of types do not exist there)

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any, Callable, List, Optional, Tuple

Preds = List[List[int]]
Color = List[Optional[int]]
Finding = Tuple[float, int, str]
"""Seconds, groups, note."""

LIMIT = "PARTITA_BENCH_LIMIT"
"""The variable that holds the seconds after which a run is ended by SIGALRM."""

ENOUGH, MOST = 1.0, 20
"""No further run after so many seconds, or so many runs."""


def report(measure: Callable[[Preds, Color], Finding]) -> None:
    """Measure the shape that the command line names, a few times if it is quick, and print what was found."""
    with open(sys.argv[1]) as file:
        preds, color = json.load(file)
    small = min(len(preds), 100)
    measure([[u for u in producers if u < small] for producers in preds[:small]], color[:small])  # warms up
    seconds: List[float] = []
    began = time.monotonic()
    while not seconds or (time.monotonic() - began < ENOUGH and len(seconds) < MOST):
        taken, groups, note = measure(preds, color)
        seconds.append(taken)
    print(json.dumps({"seconds": seconds, "groups": groups, "note": note}))


def read_by_nobody(preds: Preds) -> List[int]:
    """The nodes that are the graph's outputs."""
    read = bytearray(len(preds))
    for producers in preds:
        for u in producers:
            read[u] = 1
    return [v for v, is_read in enumerate(read) if not is_read]


def clocked(call: Callable[[], Any]) -> Tuple[float, Any]:
    """Seconds of the call, and what it returned. At the limit, if one is set, the process ends, whatever it is in."""
    signal.setitimer(signal.ITIMER_REAL, float(os.environ.get(LIMIT, "0")))
    start = time.perf_counter()
    result = call()
    taken = time.perf_counter() - start
    signal.setitimer(signal.ITIMER_REAL, 0)
    return taken, result
