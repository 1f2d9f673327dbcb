"""Small PyTorch modules with seeded random weights, each with inputs: what people export, at toy size.

`tests/make_torch_exports.py` makes the committed exports of them; `tests/test_from_torch.py` reads them directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
import transformers

WIDTHS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@attrs.frozen
class Sample:
    """A module and what to call it with."""

    module: torch.nn.Module
    """The module, in evaluation mode."""
    inputs: dict[str, torch.Tensor]
    """The arguments of `forward`, each under its parameter's name."""
    dynamic: dict[str, Any] | None = None
    """Which dims may vary, as torch spells it."""

    def expected(self) -> list[torch.Tensor]:
        """What torch computes, in the order of the exported outputs."""
        with torch.no_grad():
            outputs = self.module(**self.inputs)
        return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs.values())


def bert() -> Sample:
    config = transformers.BertConfig(vocab_size=120, max_position_embeddings=32, **WIDTHS)
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 9:] = 0
    inputs = {"input_ids": torch.randint(1, 120, (2, 12)), "attention_mask": mask}
    return Sample(spread(transformers.BertModel(config)), inputs)


def bert_dynamic() -> Sample:
    sample = bert()
    dims = {0: "batch", 1: "tokens"}
    return attrs.evolve(sample, dynamic=dict.fromkeys(sample.inputs, dims))


def vit() -> Sample:
    config = transformers.ViTConfig(image_size=32, patch_size=8, **WIDTHS)
    return Sample(spread(transformers.ViTModel(config)), {"pixel_values": torch.randn(2, 3, 32, 32)})


def gpt2() -> Sample:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 120, "n_positions": 32}
    config = transformers.GPT2Config(bos_token_id=0, eos_token_id=0, use_cache=False, **sizes)
    return Sample(spread(transformers.GPT2LMHeadModel(config)), {"input_ids": torch.randint(0, 120, (1, 10))})


class Gate(torch.nn.Module):
    """A small residual network for images whose last step depends on what it sees: an ONNX If."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        self.block = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1, groups=8), torch.nn.Conv2d(8, 8, 1))
        self.head = torch.nn.Linear(8, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = self.stem(image)
        features = torch.nn.functional.hardswish(features + self.block(features))
        pooled = torch.nn.functional.adaptive_avg_pool2d(features, 1).flatten(1)
        scores = self.head(pooled)
        return torch.cond(scores.sum() > 0, lambda s: (s.softmax(1),), lambda s: ((s * 2 - 1).tanh(),), (scores,))[0]


def gate() -> Sample:
    return Sample(spread(Gate()), {"image": torch.randn(2, 3, 16, 16)}, {"image": {0: "batch"}})


SAMPLES: dict[str, Callable[[], Sample]] = {
    "bert": bert,
    "bert_dynamic": bert_dynamic,
    "vit": vit,
    "gpt2": gpt2,
    "gate": gate,
}


def sample(name: str) -> Sample:
    """The sample of that name, the same on every call."""
    torch.manual_seed(len(name) + sum(name.encode()))
    return SAMPLES[name]()


def spread(module: torch.nn.Module) -> torch.nn.Module:
    """Weights and statistics far enough from their initial values (zeros, ones) that a lost one shows in the output."""
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            with torch.no_grad():
                tensor.add_(torch.randn_like(tensor) * 0.2)
    for submodule in module.modules():
        if isinstance(submodule, torch.nn.BatchNorm2d):
            submodule.running_var.abs_().add_(0.5)
    return module.eval()
