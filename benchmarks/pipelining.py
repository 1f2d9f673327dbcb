"""Requests over two devices with and without PIPELINE: python -m benchmarks.pipelining [--rounds N] [--into PAGE] [--tiny]

A chain of matrix products runs in part on onnxruntime and in part on `cpu`, with one thread each: one call after another, by
`m.start`, with PIPELINE, and with PIPELINE "AUTO". The ways take turns; the table shows the milliseconds of a call, and what
"AUTO" chose."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import partita as pt
from benchmarks.tables import markdown, merge
from partita.measuring.rounds import settle

PRODUCTS = 12

SHARES = (6, 10)
"""How many of the products are onnxruntime's."""

HEADER = ("products on each device", "one after another", "start", "PIPELINE", '"AUTO"', '"AUTO" chose')


def chain(size: int) -> pt.Graph:
    """Matrix products, one after another."""
    random = np.random.default_rng(0)
    x = pt.variable("x", "float32", (64, size))
    value: pt.Node = x
    for i in range(PRODUCTS):
        weights = pt.constant((random.standard_normal((size, size)) / np.sqrt(size)).astype("float32"))
        value = pt.op("Relu", pt.op("MatMul", value, weights, name=f"product{i}"), name=f"relu{i}")
    return pt.Graph([value], name="chain")


def compiled(graph: pt.Graph, share: int, **settings: Any) -> pt.CompiledModel:
    """The chain, so many of its products on onnxruntime."""
    pin = {f"{kind}{i}": "onnxruntime" if i < share else "cpu" for i in range(PRODUCTS) for kind in ("product", "relu")}
    one = {"NUM_THREADS": 1}
    config = {"onnxruntime": one, "cpu": one, "HETERO": {"NUM_REQUESTS": 3, **settings}}
    return pt.compile(graph, "HETERO:onnxruntime,cpu", config, pin=pin)


def row(share: int, size: int, calls: int, rounds: int) -> list[str]:
    """The cells of one split."""
    graph = chain(size)
    x = np.random.default_rng(1).standard_normal((64, size)).astype("float32")
    plain, piped, auto = (compiled(graph, share, **settings) for settings in ({}, {"PIPELINE": True}, {"PIPELINE": "AUTO"}))
    wanted = plain(x)[0]

    def started(model: pt.CompiledModel) -> None:
        for future in [model.start(x) for _ in range(calls)]:
            if not np.array_equal(future.result()[0], wanted):
                raise SystemExit("error: a request has other numbers than a call")

    ways: dict[str, Callable[[], object]] = {
        "one after another": lambda: [plain(x) for _ in range(calls)],
        "start": lambda: started(plain),
        "PIPELINE": lambda: started(piped),
        "AUTO": lambda: started(auto),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            settle()
            start = time.perf_counter()
            run()
            taken[name].append((time.perf_counter() - start) / calls * 1e3)
    cells = [f"{min(times):.2f} ({median(times):.2f})" for times in taken.values()]
    chose = {None: "nothing yet", True: "turns", False: "no turns"}[auto.pipelined]
    return [f"{share} on onnxruntime, {PRODUCTS - share} on cpu", *cells, chose]


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--into", type=Path, help="a page of Markdown with the marks of the table")
    parser.add_argument("--tiny", action="store_true", help="the smallest run that shows that it works")
    args = parser.parse_args()
    size, calls, rounds, shares = (16, 4, 2, SHARES[:1]) if args.tiny else (512, 60, args.rounds, SHARES)
    rows = [row(share, size, calls, rounds) for share in shares]
    print(markdown(HEADER, rows))
    if args.into:
        merge(args.into, "pipelining", HEADER, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
