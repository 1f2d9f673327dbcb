"""Seconds of a token by torch: python -m benchmarks.peers.torch_decoding MODEL SIZES THREADS PROMPT TOKENS

MODEL is gpt2 or llama, SIZES those of `benchmarks.models.exports` as JSON. The model is that of transformers with random weights,
which speaks greedily: op by op with a cache that grows, and compiled with a cache of fixed length, as torch's and transformers'
documentation advise for each. Prints the median seconds of both as JSON. It runs in an environment that has no Partita."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

MODES = ("eager", "compiled")
"""The ways that torch runs it."""


def main() -> None:
    """Print the seconds of each way; a way that fails says why."""
    name, given, threads, prompt, tokens = sys.argv[1:]
    torch.set_num_threads(int(threads))
    model = built(name, json.loads(given)).eval()
    said: dict[str, float | str] = {}
    for mode in MODES:
        try:
            said[mode] = seconds(model, mode, int(prompt), int(tokens))
        except Exception as error:  # noqa: BLE001  compilers of torch's need a C++ compiler, and raise what they like
            said[mode] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    print(json.dumps(said))


def built(name: str, sizes: Mapping[str, int]) -> Any:
    """The model with random weights."""
    torch.manual_seed(0)
    if name == "gpt2":
        few = {"n_embd": sizes["width"], "n_head": sizes["heads"], "n_layer": sizes["layers"], "n_inner": sizes["hidden"]}
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**few, vocab_size=sizes["words"], n_positions=sizes["longest"])
        )
    counts = {"num_hidden_layers": sizes["layers"], "num_attention_heads": sizes["heads"], "num_key_value_heads": sizes["groups"]}
    widths = {"hidden_size": sizes["width"], "intermediate_size": sizes["hidden"], "vocab_size": sizes["words"]}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**counts, **widths, max_position_embeddings=sizes["longest"])
    )


@torch.inference_mode()
def seconds(model: Any, mode: str, prompt: int, tokens: int) -> float:
    """The median seconds of a token after the prompt; the first few, which compile, do not count."""
    call: Callable[..., Any] = model if mode == "eager" else torch.compile(model)
    length = prompt + tokens + 1
    cache = transformers.DynamicCache(config=model.config)
    if mode == "compiled":
        cache = transformers.StaticCache(config=model.config, max_cache_len=length)
    word = model(torch.arange(prompt)[None] % model.config.vocab_size, past_key_values=cache).logits[:, -1:].argmax(-1)
    taken = []
    for at in range(prompt, length - 1):
        start = time.perf_counter()
        word = call(word, past_key_values=cache, position_ids=torch.tensor([[at]])).logits[:, -1:].argmax(-1)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[len(taken) // 4 :])


if __name__ == "__main__":
    main()
