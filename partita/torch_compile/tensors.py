"""Tensors of torch's as numpy arrays and back, sharing their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph.types import numpy_dtype

if TYPE_CHECKING:
    import torch


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's numbers, in its own memory; one that is not laid out plainly is copied."""
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype is torch.bfloat16:
        return plain.contiguous().view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
    return plain.numpy()


def as_tensor(array: np.ndarray[Any, Any], dtype: torch.dtype, order: Sequence[int] | None = None) -> torch.Tensor:
    """The array's numbers as a tensor of this type, in the array's memory, or, with an `order` of the dimensions from the widest
    stride to the narrowest, in memory of that layout."""
    import torch

    array = np.ascontiguousarray(array).reshape(array.shape)
    if dtype is torch.bfloat16:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array).to(dtype)
    return tensor if order is None else tensor.permute(*order).contiguous().permute(*np.argsort(order).tolist())
