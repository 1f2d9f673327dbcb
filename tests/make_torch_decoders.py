"""Writes tests/data/torch/decoders/: small decoders of transformers with past keys and values, as torch exports them.

    python -m tests.make_torch_decoders [NAME ...]        (in the environment that `make check-all` builds)

torch's present exporter gives equal sizes several symbols. NAME.npz holds what torch says of a prompt: the scores, and the most
likely words after it."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import Gemma3TextConfig, GPT2Config, LlamaConfig, PreTrainedModel

from tests.make_torch_exports import forget_origins

FOLDER = Path(__file__).parent / "data" / "torch" / "decoders"
WORDS, PROMPT, SAID = 61, 7, 12
FIRST = ("input_ids", "attention_mask", "position_ids")


def decoders() -> dict[str, PreTrainedModel]:
    """Small decoders with random weights, large enough that words are chosen clearly."""
    torch.manual_seed(0)
    gpt2 = transformers.GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=WORDS, n_positions=64))
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=WORDS, max_position_embeddings=64)
    window = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
    gemma = Gemma3TextConfig(**sizes, **window, head_dim=8, num_key_value_heads=2, vocab_size=WORDS, max_position_embeddings=64)
    models: dict[str, PreTrainedModel] = {
        "gpt2": gpt2,
        "llama": transformers.LlamaForCausalLM(config),
        "gemma3": transformers.Gemma3ForCausalLM(gemma),
    }
    for model in models.values():
        model.eval()
        for weights in model.parameters():
            weights.data.mul_(3 if weights.ndim > 1 else 1)
    return models


class Step(torch.nn.Module):
    """A call with the past as plain inputs."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any) -> tuple[Any, ...]:
        cache = transformers.DynamicCache(config=self.model.config)
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        given = {"attention_mask": attention_mask, "position_ids": position_ids, "past_key_values": cache}
        said = self.model(input_ids, **given, use_cache=True)
        return said.logits, *(kept for layer in said.past_key_values.layers for kept in (layer.keys, layer.values))


def main() -> None:
    """Write all of them."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    FOLDER.mkdir(parents=True, exist_ok=True)
    models = decoders()
    for name in sys.argv[1:] or models:
        model = models[name]
        export(name, model)
        ids = torch.arange(3, 3 + PROMPT)[None]
        with torch.no_grad():
            scores, said = model(ids).logits, ids
            for _ in range(SAID):
                said = torch.cat([said, model(said).logits[:, -1:].argmax(-1)], 1)
        np.savez_compressed(FOLDER / f"{name}.npz", scores=scores.numpy(), said=said[0, PROMPT:].numpy())


def export(name: str, model: PreTrainedModel) -> None:
    """Write one decoder."""
    config = model.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    groups, each = getattr(config, "num_key_value_heads", heads), config.hidden_size // heads
    past = [torch.randn(2, groups, 5, each) for _ in range(2 * layers)]
    ids, mask = torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64)
    inputs = (ids, mask, torch.arange(5, 8)[None].repeat(2, 1), *past)
    kept = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
    names = {
        "input_names": [*FIRST, *(f"past_key_values.{one}" for one in kept)],
        "output_names": ["logits", *(f"present.{one}" for one in kept)],
    }
    free = torch.export.Dim.DYNAMIC
    both, third = {0: free, 1: free}, {0: free, 2: free}
    shapes = (both, both, both, tuple(third for _ in past))
    step, file = Step(model), FOLDER / f"{name}.onnx"
    program = torch.onnx.export(step, inputs, dynamo=True, verbose=False, dynamic_shapes=shapes, opset_version=20, **names)
    proto = program.model_proto
    forget_origins(proto)
    file.write_bytes(proto.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
