"""Transformers from `transformers` configurations with seeded weights; run with torch's own environment:

    python -m benchmarks.models.transformer NAME BATCH FILE      exports one to ONNX

Nothing here needs Partita, and nothing is downloaded."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import torch

TOKENS = 128
"""The number of tokens that the language models read."""


def build(name: str) -> torch.nn.Module:
    """The module, ready to infer, with weights that are nowhere exactly zero or one."""
    import transformers as t

    torch.manual_seed(0)
    plain: dict[str, Any] = {"attn_implementation": "sdpa"}
    if name == "bert":
        module: torch.nn.Module = t.BertModel(t.BertConfig(**plain))
    elif name == "vit":
        module = t.ViTForImageClassification(t.ViTConfig(num_labels=1000, **plain))
    else:
        module = t.GPT2LMHeadModel(t.GPT2Config(use_cache=False, **plain))
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:  # biases, and the scales of norms
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif parameter.ndim == 2:
                parameter.mul_(1.5)  # wide enough that attention prefers some tokens
    return Plain(name, module).eval()


class Plain(torch.nn.Module):
    """A model of `transformers` with tensors in and one tensor out."""

    def __init__(self, name: str, inner: torch.nn.Module) -> None:
        super().__init__()
        self.name, self.inner = name, inner

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The last hidden state of BERT, else the logits."""
        if self.name == "bert":
            ids, mask, types = tensors
            return self.inner(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        if self.name == "vit":
            return self.inner(pixel_values=tensors[0]).logits
        return self.inner(input_ids=tensors[0], use_cache=False).logits


def inputs(name: str, batch: int) -> dict[str, torch.Tensor]:
    """Examples of what it reads, by name."""
    if name == "vit":
        return {"pixel_values": torch.randn(batch, 3, 224, 224)}
    ids = {"input_ids": torch.randint(0, 20_000, (batch, TOKENS))}
    if name == "bert":
        mask = torch.ones(batch, TOKENS, dtype=torch.int64)
        mask[:, -TOKENS // 8 :] = 0
        ids |= {"attention_mask": mask, "token_type_ids": torch.zeros(batch, TOKENS, dtype=torch.int64)}
    return ids


def export(name: str, batch: int, path: str) -> None:
    """Write the ONNX file, weights inside."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    examples = inputs(name, batch)
    torch.onnx.export(
        build(name),
        tuple(examples.values()),
        path,
        input_names=list(examples),
        output_names=["output"],
        opset_version=18,
        external_data=False,
        dynamo=True,
        verbose=False,
    )


if __name__ == "__main__":
    export(sys.argv[1], int(sys.argv[2]), sys.argv[3])
