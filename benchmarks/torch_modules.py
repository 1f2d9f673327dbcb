"""Modules of torchvision and transformers under torch.compile: python -m benchmarks.torch_modules [NAME ...] [--into PAGE]

Each module, with random weights and a small configuration, is captured once and held against what torch computes; then eager
mode, this backend, torch's inductor, and, called with numpy arrays, pt.compile and onnxruntime (both with torch's export) take
turns. The table says how many graphs torch captured, which ops stayed in torch, which ops of torch's export the reference runs,
and the processor time of the fastest call of each engine (with several threads: the time on the clock). With --into its rows
replace those of the same modules in the page, so that the table can be measured in parts. Exits with 1 where numbers differ."""

from __future__ import annotations

import argparse
import inspect
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import onnx
import torch
import torchvision
import transformers

import partita as pt
from benchmarks.progress import say
from benchmarks.tables import markdown, merge
from benchmarks.timing import clock_for
from partita.graph.readers.onnx import load_onnx
from partita.graph.readers.torch import export
from partita.measuring.rounds import settle

DEVICES = "HETERO:cpu,reference"

TURNS = 8
"""Turns of each engine."""

TOLERANCE = 1e-3
"""The largest difference from torch's numbers, as a part of the largest of them."""

VISION = (
    "alexnet", "vgg11", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "googlenet", "inception_v3",
    "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "shufflenet_v2_x0_5", "squeezenet1_1",
    "efficientnet_b0", "efficientnet_v2_s", "regnet_y_400mf", "convnext_tiny", "swin_t", "swin_v2_t", "vit_b_32", "maxvit_t",
)
"""Of torchvision.models."""

SEGMENTING = ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50")
"""Of torchvision.models.segmentation."""

SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 500}
GPT = {"n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 500, "n_positions": 64}
GROUPED = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64}

TEXT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bert": ("Bert", SMALL),
    "roberta": ("Roberta", SMALL),
    "electra": ("Electra", {**SMALL, "embedding_size": 64}),
    "albert": ("Albert", {**SMALL, "embedding_size": 64}),
    "distilbert": ("DistilBert", {"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256, "vocab_size": 500}),
    "mpnet": ("MPNet", SMALL),
    "squeezebert": ("SqueezeBert", {**SMALL, "embedding_size": 128}),
    "gpt2": ("GPT2", GPT),
    "opt": ("OPT", {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 256, "vocab_size": 500,
                    "word_embed_proj_dim": 128, "max_position_embeddings": 64}),
    "llama": ("Llama", GROUPED),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": None}),
    "qwen2": ("Qwen2", GROUPED),
    "gemma": ("Gemma", {**GROUPED, "head_dim": 32}),
    "gpt_neox": ("GPTNeoX", {**SMALL, "max_position_embeddings": 64}),
    "bloom": ("Bloom", {"hidden_size": 128, "n_layer": 2, "n_head": 4, "vocab_size": 500}),
    "phi": ("Phi", {**SMALL, "max_position_embeddings": 64}),
}
"""Of transformers: the beginning of the names of configuration and model, and the configuration."""

NAMES = (*VISION, *SEGMENTING, *TEXT)


@attrs.frozen
class Sample:
    """A module in evaluation mode, and what it is called with."""

    module: torch.nn.Module
    inputs: Mapping[str, torch.Tensor]


def sample(name: str) -> Sample:
    """The module of that name, the same on every call."""
    torch.manual_seed(len(name))
    if name in TEXT:
        prefix, settings = TEXT[name]
        extra = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        config = getattr(transformers, f"{prefix}Config")(**settings, **extra, use_cache=False)
        module = getattr(transformers, f"{prefix}Model")(config).eval()
        return Sample(module, {"input_ids": torch.randint(3, 500, (1, 32))})
    room = torchvision.models.segmentation if name in SEGMENTING else torchvision.models
    options: dict[str, Any] = {"weights_backbone": None} if name in SEGMENTING else {}
    if name in ("googlenet", "inception_v3"):
        options = {"init_weights": False, "transform_input": False}
    module = getattr(room, name)(weights=None, **options).eval()
    settle_norms(module)
    side = 299 if name == "inception_v3" else 224
    argument = next(iter(inspect.signature(module.forward).parameters))
    return Sample(module, {argument: torch.randn(1, 3, side, side)})


def settle_norms(module: torch.nn.Module) -> None:
    """Give batch norms statistics of some data: with those that they begin with the numbers of deep networks die or explode."""
    norms = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = None
        norm.train()
    with torch.no_grad():
        module(torch.randn(2, 3, 224, 224))
    module.eval()


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for part in value.values() for tensor in tensors(part)]
    return [tensor for part in value for tensor in tensors(part)] if isinstance(value, (tuple, list)) else []


class Notes(logging.Handler):
    """What the backend says while it captures."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs = 0
        self.left: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Count graphs, and keep the names of ops that stay in torch."""
        message = record.getMessage()
        self.graphs += "was captured" in message
        left = re.search(r"torch runs (.*)", message)
        if left:
            self.left.append(left[1])


HEADER = (
    "module", "right", "graphs", "left in torch", "on the reference",
    "partita, ms", "eager", "inductor", "pt.compile", "onnxruntime",
)


def row(name: str, engines: list[str], seconds: float) -> tuple[list[str], bool]:
    """Cells of the table, and whether the numbers are torch's."""
    taken, notes = sample(name), Notes()
    wanted = tensors(taken.module(**taken.inputs))
    log = logging.getLogger("partita.torch")
    log.addHandler(notes)
    log.setLevel("INFO")
    options = {"devices": DEVICES, "config": config()}
    ours = torch.compile(taken.module, backend="partita", options=options)
    error = difference(tensors(ours(**taken.inputs)), wanted)
    log.removeHandler(notes)
    calls: dict[str, Callable[[], Any]] = {
        "partita": lambda: ours(**taken.inputs),
        "eager": lambda: taken.module(**taken.inputs),
    }
    cells = dict.fromkeys(("partita", "eager", *RIVALS), "")
    exported = export(taken.module, tuple(taken.inputs.values()))
    for engine in engines:
        try:
            calls[engine] = RIVALS[engine](taken, exported)
        except Exception as failure:  # noqa: BLE001  that another engine fails is a finding
            cells[engine] = "fails"
            say(f"{engine}: {type(failure).__name__}: {' '.join(str(failure).split())[:300]}")
    cells.update({engine: f"{best * 1e3:.2f}" for engine, best in fastest(calls, seconds).items()})
    right = "yes" if error <= TOLERANCE else f"off by {error:.0e}"
    left = ", ".join(notes.left) or "none"
    return [name, right, str(notes.graphs), left, on_reference(exported), *cells.values()], error <= TOLERANCE


def difference(result: list[torch.Tensor], wanted: list[torch.Tensor]) -> float:
    """The largest error of all outputs."""
    if [tensor.shape for tensor in result] != [tensor.shape for tensor in wanted]:
        return float("inf")
    errors = [(a - b).abs().max() / b.abs().max().clamp(min=1e-6) for a, b in zip(result, wanted, strict=True)]
    return float(torch.stack(errors).max())


def inductor_call(taken: Sample, _: onnx.ModelProto) -> Callable[[], Any]:
    """The module as torch's own compiler has it."""
    compiled = torch.compile(taken.module)
    compiled(**taken.inputs)
    return lambda: compiled(**taken.inputs)


def config() -> dict[str, Any]:
    """As many threads as torch has."""
    return {"cpu": {"NUM_THREADS": torch.get_num_threads()}}


def own_call(taken: Sample, exported: onnx.ModelProto) -> Callable[[], Any]:
    """The module as torch exports it, compiled by `pt.compile`."""
    model = pt.compile(load_onnx(exported), DEVICES, config())
    arrays = [tensor.numpy() for tensor in taken.inputs.values()]
    return lambda: model(*arrays)


def onnxruntime_call(taken: Sample, exported: onnx.ModelProto) -> Callable[[], Any]:
    """The module as torch exports it, in onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(exported.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    feed = {name: tensor.numpy() for name, tensor in zip(names, taken.inputs.values(), strict=True)}
    return lambda: session.run(None, feed)


RIVALS: Mapping[str, Callable[[Sample, onnx.ModelProto], Callable[[], Any]]] = {
    "inductor": inductor_call,
    "pt.compile": own_call,
    "onnxruntime": onnxruntime_call,
}
"""What makes a call of each engine beside eager mode."""


def fastest(calls: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The seconds of the fastest call of each engine; they take turns."""
    clock = clock_for(torch.get_num_threads())
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(TURNS):
        for engine, call in calls.items():
            settle()
            end = time.perf_counter() + seconds / TURNS
            while time.perf_counter() < end:
                start = clock()
                call()
                best[engine] = min(best[engine], clock() - start)
    return best


def on_reference(exported: onnx.ModelProto) -> str:
    """Which ops of torch's export HETERO:cpu,reference leaves to the reference."""
    graph = load_onnx(exported)
    placement = pt.query(graph, DEVICES)
    left = sorted({str(node.op) for node in graph.nodes if node.is_op and placement[node.name] == "reference"})
    return ", ".join(left) or "none"


def placed(name: str) -> str:
    """Which ops of the module the reference runs."""
    taken = sample(name)
    return on_reference(export(taken.module, tuple(taken.inputs.values())))


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the modules (default: all)")
    parser.add_argument("--list", action="store_true", help="say which modules there are")
    parser.add_argument("--placed", action="store_true", help="only say which ops of each torch export the reference runs")
    parser.add_argument("--into", type=Path, help="a page of Markdown with the marks of the table")
    parser.add_argument("--engines", nargs="*", default=list(RIVALS), choices=list(RIVALS), help="beside eager mode")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="of calls of each engine (default: %(default)s)")
    args = parser.parse_args()
    if args.list:
        print(*NAMES, sep="\n")
        return 0
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    rows, wrong = [], 0
    header = ["module", "on the reference"] if args.placed else HEADER
    for name in args.names or NAMES:
        say(name)
        torch._dynamo.reset()
        with torch.no_grad():
            try:
                cells, is_right = ([name, placed(name)], True) if args.placed else row(name, args.engines, args.seconds)
            except Exception as error:  # noqa: BLE001  one module that fails must not hide the others
                cells = [name, f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"]
                cells, is_right = cells + [""] * (len(header) - 2), False
        rows.append(cells)
        wrong += not is_right
        if args.into and not args.placed:
            merge(args.into, "torch-modules", header, rows)
    print(markdown(header, rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
