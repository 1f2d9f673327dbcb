"""What it costs that NaN comes through the kernels of `cpu`: python -m benchmarks.nan_price [--models NAME ...] [--rounds N]

Each model is compiled twice in one process, as it is and with kernels that lose NaN in maxima, minima, bounds and pools, and both
are called in turn on one thread. Times are processor time, so that other programs disturb them little."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Iterator
from unittest.mock import patch

import attrs

import partita as pt
from benchmarks.models import NAMES, model
from partita.accelerators.tvm.code import building
from partita.accelerators.tvm.kernels.contraction.recurrent import cells
from partita.accelerators.tvm.kernels.language import Operand, Value, maximum, minimum
from partita.accelerators.tvm.kernels.rows.row_steps import _Making
from partita.accelerators.tvm.kernels.shared import elementwise, functions, reducers
from partita.accelerators.tvm.kernels.window import blocked

CONFIG = {"NUM_THREADS": 1, "CACHE_DIR": "off"}

LARGER, SMALLER = ("at_least", "larger"), ("at_most", "smaller")
"""The functions of `functions.py` through which NaN comes."""


@contextlib.contextmanager
def losing_nan() -> Iterator[None]:
    """Inside, kernels are written that lose NaN."""
    largest = blocked._largest

    def plain_maximum(x: Value, low: Operand) -> Value:
        return maximum(x, low if isinstance(low, Value) else functions._like(x, low))

    def plain_minimum(x: Value, high: Operand) -> Value:
        return minimum(x, high if isinstance(high, Value) else functions._like(x, high))

    with contextlib.ExitStack() as changes:
        for module in (functions, elementwise, reducers, cells):
            for names, plain in ((LARGER, plain_maximum), (SMALLER, plain_minimum)):
                for name in names:
                    if hasattr(module, name):
                        changes.enter_context(patch.object(module, name, plain))
        slide = patch.object(blocked, "_largest", lambda *given: attrs.evolve(largest(*given), has_squares=False))
        changes.enter_context(slide)
        changes.enter_context(patch.object(_Making, "_extreme", lambda steps, how, of: steps._reduced(how, of)))
        building.forget()
        yield
    building.forget()


def ratios(name: str, rounds: int) -> list[float]:
    """Round by round, the time with NaN over the time without."""
    chosen = model(name)
    graph, given = pt.load(chosen.path), chosen.inputs()
    building.forget()
    exact = pt.compile(graph, "cpu", config=CONFIG)
    with losing_nan():
        plain = pt.compile(graph, "cpu", config=CONFIG)
    exact(given), plain(given)
    quotients = []
    for number in range(rounds):
        pair = [(0, exact), (1, plain)]
        seconds = [0.0, 0.0]
        for side, called in pair if number % 2 else reversed(pair):
            start = time.process_time()
            called(given)
            seconds[side] = time.process_time() - start
        quotients.append(seconds[0] / seconds[1])
    return quotients


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=NAMES, choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=41, metavar="N")
    options = parser.parse_args()
    print("| model | with NaN / without |\n|---|---:|")
    for name in options.models:
        print(f"| {name} | {statistics.median(ratios(name, options.rounds)):.3f} |", flush=True)


if __name__ == "__main__":
    main()
