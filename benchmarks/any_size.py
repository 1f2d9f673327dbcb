"""Models compiled once for any size, at random sizes.

    python -m benchmarks.any_size [--models NAME ...] [--threads N ...] [--sizes N] [--seconds S] [--limited] [--tiny]

Each model with each number of threads has a fresh process. In it the model is compiled once with symbols for its batch and its
length, or its height and width; at every size it takes turns with Partita compiled for that very size, and with onnxruntime and
OpenVINO, which get the same file with its symbols. A ratio is our time over the other's, round by round, in processor time on
one thread: its geometric mean over the sizes, and the worst of them with its size. `difference` is the largest to onnxruntime's
answer, as a part of its largest number; `compiled` is how many sizes Partita compiled by themselves after the first answer,
which should be none."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import partita as pt
from benchmarks.agreement import error
from benchmarks.machine import machine_name, processor, usable_cores
from benchmarks.models.any_size import BATCH, HEIGHT, LENGTH, MODELS, WIDTH
from benchmarks.peers import onnxruntime as onnxruntime_peer
from benchmarks.peers import openvino as openvino_peer
from benchmarks.processes import CutOff, Failed, module_command, run_json
from benchmarks.progress import Progress, run
from benchmarks.timing import clock_for, clocked, geometric_mean, interleaved, ratio
from partita.accelerators.building.specialized import SpecializedSubgraph
from partita.graph.types import TensorType

MEASURED = ("bert", "gpt2", "vit-any", "resnet50", "unet-any")
"""Measured unless others are named."""

LIMITED = ("bert", "resnet50")
"""What `--limited` measures, in some minutes."""

BATCHES = {"bert": 8, "gpt2": 4, "resnet50": 16, "mobilenet_v2": 16, "squeezenet": 16}
"""The largest batch; 4 of the others."""

LENGTHS = {"bert": 512, "gpt2": 512}
"""The longest text."""

SIDES = {
    "vit-any": ((224, 224), (160, 256), (288, 288)),
    "unet-any": ((256, 256), (128, 192), (320, 224), (64, 64), (384, 384)),
}
"""Heights and widths of images, one after the other, of models that take any."""

TOKENS = 2048
"""More tokens than this at once are not measured."""

SECONDS = 180.0
"""The seconds that a process may take for each size."""

Inputs = Mapping[str, np.ndarray]

OTHERS = ("this size", "onnxruntime", "openvino")
"""Whom the model for any size is compared with."""


def main() -> None:
    """A table of the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MEASURED), choices=MODELS, metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, usable_cores()}))
    parser.add_argument("--sizes", type=int, default=10, help="how many sizes, drawn from a seed")
    parser.add_argument("--seconds", type=float, default=3.0, help="of turns for each size")
    parser.add_argument("--limited", action="store_true", help=f"{' and '.join(LIMITED)} on all cores at 4 sizes")
    parser.add_argument("--tiny", action="store_true", help="one small model, few rounds, to see that it works")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(measured(args.alone, args.threads[0], args.sizes, args.seconds)))
        return
    if args.limited:
        args.models, args.threads, args.sizes, args.seconds = list(LIMITED), [usable_cores()], 4, 2.0
    if args.tiny:
        args.models, args.threads, args.sizes, args.seconds = ["squeezenet"], [1], 2, 0.1
    print(f"{processor()} ({machine_name()}), {args.sizes} sizes\n")
    header = ["model", "threads", *(f"/ {name}" for name in OTHERS), "difference", "compiled"]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    cases = [(name, threads) for threads in args.threads for name in args.models]
    progress = Progress(len(cases), "any size")
    for name, threads in cases:
        progress.step(f"{name}, threads: {threads}")
        words = ["--alone", name, "--threads", str(threads), "--sizes", str(args.sizes), "--seconds", str(args.seconds)]
        said = run_json(module_command("benchmarks.any_size", words), SECONDS * args.sizes)
        print(f"| {name} | {threads} | {said} |" if isinstance(said, (CutOff, Failed)) else row(name, threads, said), flush=True)


def row(name: str, threads: int, rows: Sequence[Mapping[str, Any]]) -> str:
    """A line of the table: means and worst over the sizes."""
    cells = []
    for other in OTHERS:
        worst = max(rows, key=lambda one: one["ratios"][other])
        mean = geometric_mean([one["ratios"][other] for one in rows])
        cells.append(f"{mean:.2f}, worst {worst['ratios'][other]:.2f} ({worst['size']})")
    return f"| {name} | {threads} | {' | '.join(cells)} | {max(one['error'] for one in rows):.0e} | {rows[-1]['compiled']} |"


def measured(name: str, threads: int, count: int, seconds: float) -> list[dict[str, Any]]:
    """For each size the ratios to the others, and the difference to onnxruntime."""
    config, rows = {"NUM_THREADS": threads}, list[dict[str, Any]]()
    graph = pt.apply_pass(MODELS[name](), "InferShape", strict=False)
    model = pt.compile(graph, "cpu", config=config)
    with tempfile.TemporaryDirectory(prefix="partita-bench-") as folder:
        path = Path(folder) / "model.onnx"
        pt.save(graph, path)
        peers = {"onnxruntime": onnxruntime_peer, "openvino": openvino_peer}
        calls = {peer: module.load(str(path), (name, 0), threads) for peer, module in peers.items()}
        for sizes in sizes_of(name, count):
            given = inputs(graph, sizes)
            fixed = pt.compile(pt.load(path, shapes={n: a.shape for n, a in given.items()}), "cpu", config=config)
            ours = {"any size": partial(_called, model, given), "this size": partial(_called, fixed, given)}
            every = {**ours, **{peer: partial(call, given) for peer, call in calls.items()}}
            far = error(every["any size"](), every["onnxruntime"]())
            times = interleaved({who: clocked(call, clock_for(threads)) for who, call in every.items()}, seconds)
            ratios = {other: ratio([times["any size"]], [times[other]]).value for other in OTHERS}
            size = " x ".join(map(str, sizes.values()))
            rows.append({"size": size, "ratios": ratios, "error": far, "compiled": compiled_alone(model)})
    return rows


def _called(model: Callable[..., Any], given: Inputs) -> Sequence[np.ndarray]:
    return list(model(given))


def compiled_alone(model: pt.CompiledModel) -> int:
    """How many sizes are compiled by themselves."""
    return sum(len(unit.compiled.sizes) for unit in model.units if isinstance(unit.compiled, SpecializedSubgraph))


def sizes_of(name: str, count: int) -> list[dict[str, int]]:
    """So many sizes, drawn evenly on a scale of powers, so that there are as many short texts as long ones; of images in their
    own list."""
    random, drawn = np.random.default_rng(18), list[dict[str, int]]()
    if name in SIDES:
        return [{BATCH: 1, HEIGHT: height, WIDTH: width} for height, width in SIDES[name][:count]]
    while len(drawn) < count:
        size = {BATCH: _drawn(random, BATCHES.get(name, 4))}
        if name in LENGTHS:
            size[LENGTH] = _drawn(random, LENGTHS[name])
        if size[BATCH] * size.get(LENGTH, 1) <= TOKENS:
            drawn.append(size)
    return drawn


def _drawn(random: np.random.Generator, most: int) -> int:
    return round(most ** random.random())


def inputs(graph: pt.Graph, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Values for the model's inputs at this size."""
    random, given = np.random.default_rng(0), dict[str, np.ndarray]()
    for node in graph.inputs:
        kind = node[0].type
        assert isinstance(kind, TensorType) and kind.shape is not None
        shape = [size if isinstance(size, int) else sizes[str(size)] for size in kind.shape]
        if kind.dtype == "float32":
            given[node.name] = random.standard_normal(shape, np.float32)
        elif "mask" in node.name:
            given[node.name] = np.ones(shape, np.int64)
        else:
            given[node.name] = random.integers(0, 2 if "type" in node.name else 20_000, shape)
    return given


if __name__ == "__main__":
    run(main)
