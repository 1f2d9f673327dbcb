"""Latency of quantized models, side by side.

    python -m benchmarks.precision [--models NAME ...] [--threads N ...] [--integers INSTRUCTION] [--decode] [--tiny]

The models of `benchmarks.models` in QDQ form, as onnxruntime's quantizer writes them, on Partita's `cpu`, onnxruntime and
OpenVINO. All take turns in one process; one thread is measured in the processor's time, several by the clock. A table goes to the
standard output, with Partita's time over each peer's, round by round, and how far the answers are from onnxruntime's. What cannot
be quantized or run has the reason in its row; each peer first runs the model in a process of its own, and one that ends there is
left out of the row. With --decode it is GPT-2 instead, token by token, its weights alone quantized (`benchmarks.decoding`)."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs
import numpy as np

from accelerators.tvm.machine.machine import host_machine
from benchmarks.machine import machine_name, processor, usable_cores
from benchmarks.models import NAMES
from benchmarks.models.files import Model
from benchmarks.models.quantized import quantized_model
from benchmarks.processes import CutOff, Failed, module_command, run_json
from benchmarks.progress import Progress, run
from benchmarks.timing import Ratio, Seconds, clocked, interleaved, mean, ratio, summary
from graph.errors import PartitaError

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
    difference: float
    """The largest difference to onnxruntime's answer, as a part of the largest number of it."""


def main() -> None:
    """A table for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, usable_cores()}))
    parser.add_argument("--integers", default="", help="the instruction that Partita multiplies integers with")
    parser.add_argument("--decode", action="store_true", help="GPT-2 token by token, its weights alone quantized")
    parser.add_argument("--tiny", action="store_true", help="one small model, few rounds, to see that it works")
    parser.add_argument("--alone", choices=PEERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        model = quantized_model(args.models[0])
        print(json.dumps(len(PEERS[args.alone](model, args.threads[0])(model.inputs()))))
        return
    names, threads, budget = (TINY, [1], 0.5) if args.tiny else (args.models, args.threads, BUDGET)
    if args.decode:
        importlib.import_module("benchmarks.decoding").decode(threads, budget, args.tiny)
        return
    progress = Progress(len(names) * len(threads), "model")
    print(f"{processor()} ({machine_name()}), integers by {args.integers or host_machine(1).instruction('int8')}")
    for count in threads:
        heads = " | ".join(f"/ {peer}" for peer in PEERS)
        print(f"\n**{count} thread{'s' * (count > 1)}**\n\n| model | ms | {heads} | difference |")
        print(f"|---|---|{'---|' * len(PEERS)}---|")
        rows = []
        for name in names:
            progress.step(f"{name}, {count} threads")
            try:
                rows.append(measured(quantized_model(name), count, args.integers, budget))
            except (PartitaError, RuntimeError, ValueError, AssertionError) as error:
                print(f"| {name} | {str(error).splitlines()[0][:100]} |", flush=True)
            else:
                print(line(rows[-1]), flush=True)
        if rows:
            means = [str(mean([row.ratios[peer] for row in rows if peer in row.ratios])) for peer in PEERS]
            print(f"| geometric mean | | {' | '.join(means)} | |")


def measured(model: Model, threads: int, integers: str, budget: float) -> Row:
    """The engines in turn."""
    inputs = model.inputs()
    peers = {peer: load for peer, load in PEERS.items() if survives(peer, model, threads)}
    calls = {"partita": partita(model, threads, integers), **{peer: load(model, threads) for peer, load in peers.items()}}
    answers = {name: call(inputs) for name, call in calls.items()}
    clock = processor_clocked if threads == 1 else clocked
    times = interleaved({name: clock(partial(call, inputs)) for name, call in calls.items()}, budget)
    ratios = {peer: ratio([times["partita"]], [times[peer]]) for peer in peers}
    difference = distance(answers["partita"][0], answers["onnxruntime"][0]) if "onnxruntime" in answers else float("nan")
    return Row(model.name, summary([times["partita"]]).median * 1e3, ratios, difference)


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, as a part of the largest number of theirs."""
    wanted = np.asarray(theirs, np.float64)
    return float(np.abs(np.asarray(ours, np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def survives(peer: str, model: Model, threads: int) -> bool:
    """Does the peer run the model to its end? Some end the process."""
    command = module_command("benchmarks.precision", ["--models", model.name, "--threads", str(threads), "--alone", peer])
    try:
        run_json(command, SECONDS)
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


def partita(model: Model, threads: int, integers: str) -> Call:
    """Partita's `cpu`."""
    import partita as pt

    compiled = pt.compile(pt.load(model.path), "cpu", {"NUM_THREADS": threads, "INTEGERS": integers})
    return lambda inputs: list(compiled(dict(inputs)))


def onnxruntime(model: Model, threads: int) -> Call:
    """onnxruntime as the other benchmarks have it."""
    call: Call = importlib.import_module("benchmarks.peers.onnxruntime").load(str(model.path), (model.name, 1), threads)
    return call


def openvino(model: Model, threads: int) -> Call:
    """OpenVINO with its own precision for what is not quantized."""
    import openvino as ov

    properties = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    request = ov.Core().compile_model(str(model.path), "CPU", properties).create_infer_request()
    return lambda inputs: list(request.infer(dict(inputs), share_inputs=True).values())


PEERS = {"onnxruntime": onnxruntime, "openvino": openvino}


def line(row: Row) -> str:
    """A row of the table."""
    ratios = [str(row.ratios.get(peer, "it ends the process")) for peer in PEERS]
    cells = [row.name, f"{row.milliseconds:.2f}", *ratios, f"{row.difference:.3f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    run(main)
