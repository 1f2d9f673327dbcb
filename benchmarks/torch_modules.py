"""Modules of torchvision and transformers under torch.compile: python -m benchmarks.torch_modules [NAME ...] [--placed]

Each module, with random weights and a small configuration, is captured once and held against what torch computes; then eager
mode, this backend, torch's inductor and onnxruntime (from torch's export) take turns. The table says how many graphs torch
captured, which ops stayed in torch, and the fastest call of each. Exits with 1 where numbers differ."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import torch
import torchvision
import transformers

import partita as pt
from benchmarks.progress import say
from benchmarks.tables import markdown
from benchmarks.timing import clocked

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
    argument = "input" if name in SEGMENTING else "img" if name == "vit" else "x"
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


def row(name: str, engines: list[str], seconds: float) -> tuple[list[str], bool]:
    """Cells of the table, and whether the numbers are torch's."""
    taken, notes = sample(name), Notes()
    wanted = tensors(taken.module(**taken.inputs))
    calls: dict[str, Callable[[], Any]] = {"eager": lambda: taken.module(**taken.inputs)}
    log = logging.getLogger("partita.torch")
    log.addHandler(notes)
    log.setLevel("INFO")
    options = {"devices": "HETERO:cpu,reference", "config": {"cpu": {"NUM_THREADS": torch.get_num_threads()}}}
    ours = torch.compile(taken.module, backend="partita", options=options)
    began = time.perf_counter()
    error = difference(tensors(ours(**taken.inputs)), wanted)
    first = time.perf_counter() - began
    log.removeHandler(notes)
    calls["partita"] = lambda: ours(**taken.inputs)
    if "inductor" in engines:
        inductor = torch.compile(taken.module)
        calls["inductor"] = lambda: inductor(**taken.inputs)
    if "onnxruntime" in engines:
        calls["onnxruntime"] = onnxruntime_call(taken)
    best = {engine: fastest(call, seconds) for engine, call in calls.items()}
    cells = [f"{best[engine] * 1e3:.2f}" if engine in best else "" for engine in ("partita", "eager", "inductor", "onnxruntime")]
    right = "yes" if error <= TOLERANCE else f"off by {error:.0e}"
    return [name, right, str(notes.graphs), ", ".join(notes.left) or "none", f"{first:.1f}", *cells], error <= TOLERANCE


def difference(result: list[torch.Tensor], wanted: list[torch.Tensor]) -> float:
    """The largest error of all outputs."""
    if [tensor.shape for tensor in result] != [tensor.shape for tensor in wanted]:
        return float("inf")
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-6)) for a, b in zip(result, wanted, strict=True))


def onnxruntime_call(taken: Sample) -> Callable[[], Any]:
    """The module as torch exports it, in onnxruntime."""
    import onnxruntime

    from graph.readers.torch import export

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    data = export(taken.module, tuple(taken.inputs.values())).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    feed = {name: tensor.numpy() for name, tensor in zip(names, taken.inputs.values(), strict=True)}
    return lambda: session.run(None, feed)


def fastest(call: Callable[[], Any], seconds: float) -> float:
    """The seconds of the fastest call."""
    call()
    end, best = time.perf_counter() + seconds, float("inf")
    while time.perf_counter() < end:
        best = min(best, *clocked(call)(1))
    return best


def on_reference(name: str) -> str:
    """Which ops of torch's export HETERO:cpu,reference leaves to the reference."""
    taken = sample(name)
    graph = pt.from_torch(taken.module, tuple(taken.inputs.values()))
    placement = pt.query(graph, "HETERO:cpu,reference")
    left = sorted({str(node.op) for node in graph.nodes if node.is_op and placement[node.name] == "reference"})
    return ", ".join(left) or "none"


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the modules (default: all)")
    parser.add_argument("--list", action="store_true", help="say which modules there are")
    parser.add_argument("--placed", action="store_true", help="only say which ops of each torch export the reference runs")
    both = ["inductor", "onnxruntime"]
    parser.add_argument("--engines", nargs="*", default=both, help="beside eager mode (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="of calls of each engine (default: %(default)s)")
    args = parser.parse_args()
    if args.list:
        print(*NAMES, sep="\n")
        return 0
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    rows, wrong = [], 0
    header = ["module", "right", "graphs", "left in torch", "first call, s", "partita, ms", "eager", "inductor", "onnxruntime"]
    for name in args.names or NAMES:
        say(name)
        torch._dynamo.reset()
        with torch.no_grad():
            try:
                cells, is_right = ([name, on_reference(name)], True) if args.placed else row(name, args.engines, args.seconds)
            except Exception as error:  # noqa: BLE001  one module that fails must not hide the others
                cells = [name, f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"]
                cells, is_right = cells + [""] * (0 if args.placed else len(header) - 2), False
        rows.append(cells)
        wrong += not is_right
    print(markdown(["module", "on the reference"] if args.placed else header, rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
