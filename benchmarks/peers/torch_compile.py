"""torch.compile with its default backend."""

from __future__ import annotations

import torch

from benchmarks.models.transformer import build
from benchmarks.peers.torch_eager import Call, of_module


def load(path: str, model: tuple[str, int], threads: int) -> Call:
    """The same module, compiled at its first call."""
    if threads:
        torch.set_num_threads(threads)
    module = build(model[0]).to("cpu" if threads else "cuda")
    return of_module(torch.compile(module), threads)
