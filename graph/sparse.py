"""Sparse tensors, as some ONNX attributes hold them."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np


@attrs.frozen(slots=True, eq=False)
class SparseTensor:
    """The values that are not zero, and where they stand."""

    values: np.ndarray[Any, Any]
    """The values, in the order of their positions."""
    indices: np.ndarray[Any, Any]
    """The positions of the values: indices into the flattened tensor, or one row of coordinates for each value."""
    shape: tuple[int, ...]
    """The sizes of the dense tensor."""

    def dense(self) -> np.ndarray[Any, Any]:
        """The tensor with its zeros."""
        array = np.zeros(self.shape, self.values.dtype)
        if self.indices.ndim == 1:
            array.reshape(-1)[self.indices] = self.values
        else:
            array[tuple(self.indices.T)] = self.values
        return array
