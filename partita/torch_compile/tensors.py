"""Conversion of torch's tensors to numpy arrays and back, sharing their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from partita.graph.types import ELEMENT_TYPES, numpy_dtype

if TYPE_CHECKING:
    import torch


NARROW = {
    row.name: {8: "uint8", 16: "int16"}[row.bits]
    for row in ELEMENT_TYPES.values()
    if row.is_extension and row.bits >= 8
}
"""Element types that numpy has only with `ml_dtypes`, each with the integer type by which it is converted."""


def as_array(tensor: torch.Tensor | int) -> np.ndarray[Any, Any]:
    """The tensor as an array in the same memory; a tensor without a plain layout is copied."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return np.asarray(tensor, np.int64)
    plain = tensor.detach().resolve_conj().resolve_neg()
    name = str(plain.dtype).removeprefix("torch.")
    if name in NARROW:
        return plain.contiguous().view(getattr(torch, NARROW[name])).numpy().view(numpy_dtype(name))
    return plain.numpy()


def as_tensor(
    array: np.ndarray[Any, Any], dtype: torch.dtype, order: Sequence[int] | None = None, repeated: Sequence[int] = ()
) -> torch.Tensor:
    """The array as a tensor of this type, in the array's memory, or, with an `order` of the dimensions from the widest stride to
    the narrowest, in memory of that layout. Dimensions in `repeated` have stride 0."""
    import torch

    if repeated:
        first = array[tuple(slice(1) if d in repeated else slice(None) for d in range(array.ndim))]
        return as_tensor(first, dtype, order).expand(array.shape)
    if not array.size:
        return torch.empty(array.shape, dtype=dtype)
    array = np.ascontiguousarray(array).reshape(array.shape)
    name = array.dtype.name
    if name in NARROW:
        tensor = torch.from_numpy(array.view(NARROW[name])).view(getattr(torch, name))
    else:
        tensor = torch.from_numpy(array)
    # The exporter may declare another type than torch, as for the sum of a bfloat16 tensor.
    tensor = tensor.to(dtype)
    return tensor if order is None else tensor.permute(*order).contiguous().permute(*np.argsort(order).tolist())
