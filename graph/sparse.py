"""Sparse tensors, as in some ONNX attributes."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np


@attrs.frozen(slots=True, eq=False)
class SparseTensor:
    """The nonzero values and their positions."""

    values: np.ndarray[Any, Any]
    """The values, in the order of their positions."""
    indices: np.ndarray[Any, Any]
    """The positions of the values: indices into the flattened tensor, or one row of coordinates per value."""
    shape: tuple[int, ...]
    """The shape of the dense tensor."""

    def dense(self) -> np.ndarray[Any, Any]:
        """The dense tensor."""
        array = np.zeros(self.shape, self.values.dtype)
        if self.indices.ndim == 1:
            array.reshape(-1)[self.indices] = self.values
        else:
            array[tuple(self.indices.T)] = self.values
        return array
