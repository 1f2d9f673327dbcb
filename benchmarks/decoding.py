"""Tokens per second of conversations, side by side.

    python -m benchmarks.decoding [--models gpt2 llama] [--weights f32 int8 int4] [--threads N ...] [--tokens 256] [--torch]

A prompt of 128 tokens, and then one token after another, each the most likely one. The models are GPT-2 (124 million weights)
and one like Llama with grouped queries, as exporters write them, with random weights: float32, or bytes with a scale for each
column, or half bytes with one for each block of 64. Partita decodes in a session; onnxruntime keeps past keys and values in its
I/O binding, and OpenVINO in the state of its model. Both gather from tables of float32, and onnxruntime gets half bytes as its
own MatMulNBits, which rounds activations to bytes. All run in one process and take turns of some tokens each. `bandwidth` is what
Partita reads of weights and of the past in a second, over what the machine copies in a second with as many threads. `memory` is
what the process grows by while Partita speaks, in MB. `same` is the number of tokens before the first that another engine says
otherwise. With --torch, which makes an environment for it on first use, float32 is also compared with torch, eager and compiled,
which says as many tokens in a process of its own, after the others. --tiny takes small models."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

import attrs
import numpy as np

import partita as pt
from benchmarks.machine import machine_name, processor, usable_cores
from benchmarks.models import exports
from benchmarks.models.decoder import in_blocks, narrow, with_wide_tables
from benchmarks.processes import CutOff, Failed, module_command, resident, run_json
from benchmarks.progress import run
from benchmarks.venvs import TORCH, PeerMissing, python_of

MODELS = {
    "gpt2": (exports.gpt2, exports.Sizes(tied=False)),
    "llama": (exports.llama, exports.LLAMA),
}
"""What writes each model, and its sizes."""

TINY = {
    "gpt2": (exports.gpt2, attrs.evolve(exports.SMALL, tied=False, width=64, hidden=128)),
    "llama": (exports.llama, attrs.evolve(exports.SMALL_LLAMA, width=64, hidden=128)),
}
"""What `--tiny` measures, to see that it works."""

WEIGHTS = {"f32": None, "int8": (8, 0), "int4": (4, 64)}
"""Bits of a weight, and how many have one scale; 0: a column has one."""

PEERS = ("onnxruntime", "openvino")
"""The engines that take turns with Partita."""

MODES = ("eager", "compiled")
"""The ways that torch runs a model (`peers/torch_decoding.py`)."""

TURN = 16
"""Tokens that one says before the next has its turn."""

LIMIT = 900.0
"""Seconds that torch may take for one model."""

COPIED = 1 << 28
"""Bytes that each thread copies to see how fast the machine does."""

Array = np.ndarray


class Decodes(Protocol):
    """An engine with a conversation."""

    def say(self, ids: Array) -> Array:
        """The scores after the last of these tokens."""


class Partita:
    """A session."""

    def __init__(self, graph: pt.Graph, room: int, threads: int) -> None:
        self.session = pt.compile(graph, "cpu", {"NUM_THREADS": threads}).session(longest=room)

    def say(self, ids: Array) -> Array:
        scores: Array = self.session(ids)["logits"][0, -1]
        return scores


class OnnxRuntime:
    """Past keys and values stay in values of onnxruntime's own: each output is bound as the next input."""

    def __init__(self, graph: pt.Graph, path: Path, threads: int) -> None:
        import onnxruntime

        pt.save(graph, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.names = {node.name for node in graph.inputs}
        self.past = [node.name for node in graph.inputs if node.name.startswith("past")]
        self.present = [name for name in graph.output_names if name.startswith("present")]
        self.length = 0
        first = np.zeros(_empty(graph, self.past[0]), np.float32)
        self.kept = [onnxruntime.OrtValue.ortvalue_from_numpy(first.copy()) for _ in self.past]

    def say(self, ids: Array) -> Array:
        for name, value in _filled(self.names, ids, self.length).items():
            self.binding.bind_cpu_input(name, value)
        for name, kept in zip(self.past, self.kept, strict=True):
            self.binding.bind_ortvalue_input(name, kept)
        for name in ("logits", *self.present):
            self.binding.bind_output(name)
        self.session.run_with_iobinding(self.binding)
        scores, *self.kept = self.binding.get_outputs()
        self.length += ids.shape[1]
        last: Array = scores.numpy()[0, -1]
        return last


class OpenVino:
    """Past keys and values are the state of the model."""

    def __init__(self, graph: pt.Graph, path: Path, threads: int) -> None:
        import openvino
        from openvino._offline_transformations import apply_make_stateful_transformation

        pt.save(graph, path)
        core = openvino.Core()
        model = core.read_model(path)
        past = [node.name for node in graph.inputs if node.name.startswith("past")]
        present = [name for name in graph.output_names if name.startswith("present")]
        model.reshape({node.name: openvino.PartialShape(_dims(node)) for node in graph.inputs})
        apply_make_stateful_transformation(model, dict(zip(past, present, strict=True)))
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        self.request = core.compile_model(model, "CPU", settings).create_infer_request()
        self.names = {node.name for node in graph.inputs} - set(past)
        self.length = 0

    def say(self, ids: Array) -> Array:
        results = self.request.infer(_filled(self.names, ids, self.length), share_inputs=True)
        self.length += ids.shape[1]
        return np.array(results["logits"][0, -1])


def _dims(node: pt.Node) -> list[int]:
    kind = node.output_types[0]
    assert isinstance(kind, pt.TensorType)
    return [1 if dim == "batch" else dim if isinstance(dim, int) else -1 for dim in kind.shape or ()]


def _empty(graph: pt.Graph, name: str) -> tuple[int, ...]:
    """The shape of a past without tokens."""
    return tuple(max(dim, 0) for dim in _dims(next(node for node in graph.inputs if node.name == name)))


def _filled(names: set[str], ids: Array, length: int) -> dict[str, Array]:
    """The inputs other than the past."""
    count = ids.shape[1]
    values = {
        "input_ids": ids,
        "attention_mask": np.ones((1, length + count), np.int64),
        "position_ids": np.arange(length, length + count)[None],
    }
    return {name: value for name, value in values.items() if name in names}


@attrs.define
class Talk:
    """What an engine said, and how long each token took."""

    engine: Decodes
    tokens: list[int] = attrs.field(factory=list)
    seconds: list[float] = attrs.field(factory=list)

    def begin(self, prompt: Array) -> None:
        """Read the prompt, and say a first word."""
        self.tokens = [int(self.engine.say(prompt).argmax())]

    def go_on(self, count: int) -> None:
        """Say so many more."""
        for _ in range(count):
            start = time.perf_counter()
            scores = self.engine.say(np.array([[self.tokens[-1]]]))
            self.seconds.append(time.perf_counter() - start)
            self.tokens.append(int(scores.argmax()))


def main() -> None:
    """A table for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--weights", nargs="+", default=list(WEIGHTS), choices=WEIGHTS)
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, usable_cores()}))
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--torch", action="store_true", help="torch too, in an environment of its own")
    parser.add_argument("--tiny", action="store_true", help="small models, few tokens, to see that it works")
    args = parser.parse_args()
    prompt, tokens, models = (6, 2 * TURN, TINY) if args.tiny else (args.prompt, args.tokens, MODELS)
    print(f"{processor()} ({machine_name()})")
    for threads in args.threads:
        copied = copy_bandwidth(threads, COPIED >> 6 if args.tiny else COPIED)
        title = f"{threads} thread{'s' * (threads > 1)}, which copy {copied / 1e9:.1f} GB/s"
        peers = [*PEERS, *(f"torch {mode}" for mode in MODES if args.torch)]
        heads = ["model", "tokens/s", *(f"/ {peer}" for peer in peers), "bandwidth", "memory", "same"]
        print(f"\n**{title}**\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for name in args.models:
            for weights in args.weights:
                by_torch = partial(of_torch, name, models[name][1], prompt, tokens, threads) if args.torch else None
                print(measured(name, weights, models[name], prompt, tokens, threads, copied, by_torch), flush=True)


def measured(
    name: str,
    weights: str,
    recipe: tuple[Callable[[exports.Sizes], pt.Graph], exports.Sizes],
    prompt: int,
    tokens: int,
    threads: int,
    copied: float,
    by_torch: Callable[[], Mapping[str, float | str]] | None = None,
) -> str:
    """A row: all engines in turns, and torch after them."""
    make, sizes = recipe
    form = WEIGHTS[weights]
    graph = make(sizes) if form is None else narrow(make(sizes), *form)
    peers = with_wide_tables(graph)
    ids = np.random.default_rng(0).integers(0, sizes.words, (1, prompt))
    with tempfile.TemporaryDirectory() as folder:
        blocks = in_blocks(peers) if form is not None and form[1] else peers
        talks = {
            "partita": Talk(Partita(graph, prompt + tokens + 1, threads)),
            "onnxruntime": Talk(OnnxRuntime(blocks, Path(folder) / "onnxruntime.onnx", threads)),
            "openvino": Talk(OpenVino(peers, Path(folder) / "openvino.onnx", threads)),
        }
        for talk in talks.values():
            talk.begin(ids)
        grown = 0
        for count in turns(tokens):
            for who, talk in talks.items():
                before = resident(os.getpid())
                talk.go_on(count)
                grown += resident(os.getpid()) - before if who == "partita" and len(talk.seconds) > TURN else 0
    medians = {who: statistics.median(talk.seconds[1:]) for who, talk in talks.items()}
    ours = medians["partita"]
    ratios = [f"{ours / medians[who]:.2f}" for who in PEERS]
    if by_torch is not None:
        ratios += torch_ratios(ours, by_torch()) if form is None else ["–"] * len(MODES)
    past = 4 * 2 * sizes.layers * sizes.groups * sizes.each * (prompt + tokens / 2)
    read = (weight_bytes(graph) + past) / ours
    same = min(agreed(talks["partita"].tokens, talk.tokens) for who, talk in talks.items() if who != "partita")
    said = f"{grown / 1e6:.1f}", f"{same} of {tokens + 1}"
    return f"| {' | '.join([f'{name}, {weights}', f'{1 / ours:.1f}', *ratios, f'{read / copied:.2f}', *said])} |"


def of_torch(name: str, sizes: exports.Sizes, prompt: int, tokens: int, threads: int) -> Mapping[str, float | str]:
    """The seconds of a token by torch, or why there are none."""
    words = [name, json.dumps(attrs.asdict(sizes)), str(threads), str(prompt), str(tokens)]
    try:
        said = run_json(module_command("benchmarks.peers.torch_decoding", words, python_of(TORCH)), LIMIT)
    except (PeerMissing, CutOff, Failed) as error:
        return dict.fromkeys(MODES, str(error))
    seconds: Mapping[str, float | str] = said
    return seconds


def torch_ratios(ours: float, seconds: Mapping[str, float | str]) -> list[str]:
    """Our time over torch's; where it has none, the reason goes to the errors."""
    ratios = []
    for mode in MODES:
        taken = seconds[mode]
        if isinstance(taken, str):
            print(f"torch {mode}: {taken}", file=sys.stderr)
        ratios.append("–" if isinstance(taken, str) else f"{ours / taken:.2f}")
    return ratios


def turns(tokens: int) -> list[int]:
    """How many tokens each turn has."""
    return [min(TURN, tokens - start) for start in range(0, tokens, TURN)]


def agreed(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """The tokens before the first that differs."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), len(ours))


def weight_bytes(graph: pt.Graph) -> float:
    """The bytes of the matrices that a token is multiplied by, as a file holds them; of tables it reads a row."""
    tables = {node.inputs[0].node for node in graph.nodes if node.op == "Gather" and node.inputs[0] is not None}
    looked_up = {entry.node for node in tables for entry in node.reads} | tables
    arrays = [node.value for node in graph.nodes if node.value is not None and node not in looked_up]
    return sum(array.nbytes / (2 if array.dtype.name == "int4" else 1) for array in arrays if array.dtype != bool)


def copy_bandwidth(threads: int, count: int) -> float:
    """Bytes that are read and written in a second by so many threads that copy; the best of a few tries."""
    pairs = [(np.ones(count, np.uint8), np.zeros(count, np.uint8)) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        best = float("inf")
        for _ in range(6):
            start = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pairs))
            best = min(best, time.perf_counter() - start)
    return 2 * count * threads / best


if __name__ == "__main__":
    run(main)
