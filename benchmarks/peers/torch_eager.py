"""torch, op by op; the module that the ONNX file was exported from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from benchmarks.models.transformer import build

Call = Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]


def load(path: str, model: tuple[str, int], threads: int) -> Call:
    """Load the module in inference mode."""
    return of_module(build(model[0]), threads)


def of_module(module: Callable[..., torch.Tensor], threads: int) -> Call:
    """A function that calls the module with arrays."""
    if threads:
        torch.set_num_threads(threads)
    device = "cpu" if threads else "cuda"
    if isinstance(module, torch.nn.Module):
        module.to(device)

    def call(inputs: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
        with torch.inference_mode():
            return [module(*(torch.from_numpy(array).to(device) for array in inputs.values())).cpu().numpy()]

    return call
