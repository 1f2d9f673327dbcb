"""Latency in low precision, side by side.

    python -m benchmarks.precision [--kinds int8 bf16] [--models NAME ...] [--threads N ...] [--integers NAME] [--decode] [--tiny]
    python -m benchmarks.precision --merge FILE ...     puts what earlier runs printed into the tables of the documentation

int8: the models of `benchmarks.models` in QDQ form, as onnxruntime's quantizer writes them, on Partita's `cpu`, onnxruntime and
OpenVINO; the difference is the largest to onnxruntime's answer. bf16: the same models in bfloat16, beside OpenVINO in bfloat16
and Partita in float32; the differences are ours and OpenVINO's to Partita's float32. Each is a part of the largest number of the
answer that it is the difference to. All take turns in one process; one thread is measured in the processor's time, several by the
clock. A table goes to the standard output, with Partita's time over each peer's, round by round. What cannot be quantized or run
has the reason in its row; each peer first runs the model in a process of its own, and one that ends there is left out of the row.
With --decode it is GPT-2 instead, token by token, its weights alone quantized (`benchmarks.decode_step`)."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import numpy as np

from benchmarks.machine import machine_name, processor, usable_cores
from benchmarks.models.files import NAMES, Model, model
from benchmarks.models.quantized import quantized_model
from benchmarks.precision_pages import merge
from benchmarks.processes import CutOff, Failed, module_command, run_json
from benchmarks.progress import Progress, run
from benchmarks.timing import Ratio, Seconds, clocked, interleaved, mean, ratio, summary
from partita.accelerators.tvm.machine.machine import host_machine
from partita.graph.errors import PartitaError

BUDGET = 8.0
"""Seconds for the turns of one model."""

SECONDS = 600.0
"""The seconds that a peer may take to run a model once."""

TINY = ("squeezenet",)

Call = Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]


@attrs.frozen
class Row:
    """A model."""

    name: str
    milliseconds: float
    ratios: Mapping[str, Ratio]
    """Our time over each peer's."""
    differences: tuple[float, ...]
    """How far answers are from those that they are compared with."""


@attrs.frozen
class Kind:
    """A precision, and who takes part in it."""

    given: Callable[[str], Model]
    """The model of that name as this precision has it."""
    ours: Mapping[str, object]
    """The configuration of `cpu`."""
    peers: Mapping[str, Callable[[Model, int], Call]]
    """Each peer's call, given a model and the number of threads."""
    compared: Mapping[str, tuple[str, str]]
    """By title, two whose answers are compared."""


def main() -> None:
    """A table for each kind and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, usable_cores()}))
    parser.add_argument("--integers", default="", help="the instruction that Partita multiplies integers with")
    parser.add_argument("--decode", action="store_true", help="GPT-2 token by token, its weights alone quantized")
    parser.add_argument("--tiny", action="store_true", help="one small model, few rounds, to see that it works")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="FILE", help="outputs of runs, for the documentation's tables")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.merge:
        merge(args.merge)
        return
    if args.alone:
        kind = KINDS[args.kinds[0]]
        given = kind.given(args.models[0])
        print(json.dumps(len(kind.peers[args.alone](given, args.threads[0])(given.inputs()))))
        return
    names, threads, budget = (TINY, [1], 0.5) if args.tiny else (args.models, args.threads, BUDGET)
    if args.decode:
        importlib.import_module("benchmarks.decode_step").decode(threads, budget, args.tiny)
        return
    progress = Progress(len(names) * len(threads) * len(args.kinds), "model")
    host = host_machine(1)
    products = f"integers by {args.integers or host.instruction('int8')}, bfloat16 by {host.instruction('bfloat16')}"
    print(f"{processor()} ({machine_name()}), {products}")
    for title, count in [(title, count) for title in args.kinds for count in threads]:
        kind = KINDS[title]
        heads = " | ".join([*(f"/ {peer}" for peer in kind.peers), *kind.compared])
        print(f"\n**{title}, {count} thread{'s' * (count > 1)}**\n\n| model | ms | {heads} |")
        print(f"|---|---|{'---|' * (len(kind.peers) + len(kind.compared))}")
        rows = []
        for name in names:
            progress.step(f"{name}, {title}, {count} threads")
            try:
                rows.append(measured(title, name, count, args.integers, budget))
            except (PartitaError, RuntimeError, ValueError, AssertionError) as error:
                print(f"| {name} | {str(error).splitlines()[0][:100]} |", flush=True)
            else:
                print(line(kind, rows[-1]), flush=True)
        if rows:
            means = [str(mean([row.ratios[peer] for row in rows if peer in row.ratios])) for peer in kind.peers]
            print(f"| geometric mean | | {' | '.join([*means, *[''] * len(kind.compared)])} |")


def measured(title: str, name: str, threads: int, integers: str, budget: float) -> Row:
    """The engines in turn."""
    kind = KINDS[title]
    given = kind.given(name)
    inputs, config = given.inputs(), {**kind.ours, "NUM_THREADS": threads, "INTEGERS": integers}
    peers = {peer: load for peer, load in kind.peers.items() if survives(title, peer, name, threads)}
    calls = {"partita": partita(given, config), **{peer: load(given, threads) for peer, load in peers.items()}}
    answers = {each: call(inputs)[0] for each, call in calls.items()}
    clock = processor_clocked if threads == 1 else clocked
    times = interleaved({each: clock(partial(call, inputs)) for each, call in calls.items()}, budget)
    ratios = {peer: ratio([times["partita"]], [times[peer]]) for peer in peers}
    distances = [distance(answers[a], answers[b]) if {a, b} <= set(calls) else float("nan") for a, b in kind.compared.values()]
    return Row(given.name, summary([times["partita"]]).median * 1e3, ratios, tuple(distances))


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, as a part of the largest number of theirs."""
    wanted = np.asarray(theirs, np.float64)
    return float(np.abs(np.asarray(ours, np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def survives(title: str, peer: str, name: str, threads: int) -> bool:
    """Does the peer run the model to its end? Some end the process."""
    options = ["--kinds", title, "--models", name, "--threads", str(threads), "--alone", peer]
    try:
        run_json(module_command("benchmarks.precision", options), SECONDS)
    except (CutOff, Failed):
        return False
    return True


def processor_clocked(call: Callable[[], object]) -> Seconds:
    """A call as something to measure in the processor's time: of one thread, that leaves out the moments when others run."""

    def seconds(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            start = time.process_time()
            call()
            taken.append(time.process_time() - start)
        return taken

    return seconds


def partita(given: Model, config: Mapping[str, object]) -> Call:
    """Partita's `cpu`."""
    import partita as pt

    compiled = pt.compile(pt.load(given.path), "cpu", config)
    return lambda inputs: list(compiled(dict(inputs)))


def onnxruntime(given: Model, threads: int) -> Call:
    """onnxruntime as the other benchmarks have it."""
    call: Call = importlib.import_module("benchmarks.peers.onnxruntime").load(str(given.path), (given.name, 1), threads)
    return call


def openvino(given: Model, threads: int, **more: str) -> Call:
    """OpenVINO, by default with its own precision for what is not quantized."""
    import openvino as ov

    properties = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, **more}
    request = ov.Core().compile_model(str(given.path), "CPU", properties).create_infer_request()
    return lambda inputs: list(request.infer(dict(inputs), share_inputs=True).values())


KINDS = {
    "int8": Kind(
        quantized_model,
        {},
        {"onnxruntime": onnxruntime, "openvino": openvino},
        {"difference to onnxruntime": ("partita", "onnxruntime")},
    ),
    "bf16": Kind(
        model,
        {"PRECISION": "bf16"},
        {
            "openvino": lambda given, threads: openvino(given, threads, INFERENCE_PRECISION_HINT="bf16"),
            "f32": lambda given, threads: partita(given, {"NUM_THREADS": threads}),
        },
        {"difference to f32": ("partita", "f32"), "openvino's difference to f32": ("openvino", "f32")},
    ),
}


def line(kind: Kind, row: Row) -> str:
    """A row of the table."""
    ratios = [str(row.ratios.get(peer, "it ends the process")) for peer in kind.peers]
    distances = [f"{value:.4f}" for value in row.differences]
    return f"| {' | '.join([row.name, f'{row.milliseconds:.2f}', *ratios, *distances])} |"


if __name__ == "__main__":
    run(main)
