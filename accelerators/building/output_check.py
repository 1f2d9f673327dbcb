"""Checks the outputs of a device against the types that the body declares, because a wrong dtype would cause wrong
results later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.accelerators.arrays.layout import array_layout
from partita.accelerators.arrays.on_device import DeviceArray
from partita.accelerators.errors import ClaimError, RunError
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry
from partita.graph.rewrite import with_sizes_of
from partita.graph.types import TensorType, numpy_dtype
from partita.passes.infer.traced_sizes import REMEDY


class OutputCheck:
    """The check of one body's outputs: `fits` is the fast check for valid ones, `checked` the full one."""

    def __init__(self, body: Graph) -> None:
        self._body = body
        self._layouts = [_layout(entry) for entry in body.outputs]
        """For each output the dtype, and the shape if it is static, or the type if only some sizes are."""

    def fits(self, returned: Any) -> bool:
        """True if they are arrays of the dtypes and sizes that the body declares."""
        if type(returned) not in (list, tuple) or len(returned) != len(self._layouts):
            return False
        for value, (dtype, shape, partly) in zip(returned, self._layouts):
            if dtype is None:
                continue
            if type(value) is not np.ndarray and not isinstance(value, DeviceArray):
                return False
            if value.dtype != dtype or (shape is not None and value.shape != shape):
                return False
            if partly is not None and not _agrees(value, partly):
                return False
        return True

    def counted(self, returned: Any, where: str) -> Sequence[Any]:
        """The outputs, if their number is right. Nothing else can be checked of values in a device's own memory."""
        if isinstance(returned, (str, bytes)) or not isinstance(returned, Sequence):
            raise RunError(f"it returned {type(returned).__name__}, not a list of outputs", where=where)
        if len(returned) != len(self._layouts):
            raise RunError(f"it returned {len(returned)} values for {len(self._layouts)} outputs", where=where)
        return returned

    def checked(self, returned: Any, inputs: Sequence[Any], where: str) -> list[Any]:
        """The outputs as plain arrays; RunError for an output that is no array, or whose dtype or sizes differ from those that
        follow from these inputs or that the model declares.
        """
        values = [_plain(value, entry, where) for value, entry in zip(self.counted(returned, where), self._body.outputs)]
        if not self.fits(values):
            self._check_sizes(values, inputs, where)
        return values

    def _check_sizes(self, values: Sequence[Any], inputs: Sequence[Any], where: str) -> None:
        from partita.passes.infer import infer

        for value, entry in zip(values, infer(with_sizes_of(self._body, inputs), strict=False).outputs):
            layout = array_layout(entry.type)
            if layout is not None and value.shape != layout[1]:
                cause = f"it returned sizes {list(value.shape)} for output {entry.name!r}, which is {entry.type}"
                raise RunError(cause, where=where)
        for value, entry in zip(values, self._body.outputs):
            if isinstance(entry.type, TensorType) and not _agrees(value, entry.type):
                cause = f"the value {entry.name!r} is declared {entry.type}, and sizes {list(value.shape)} came of these inputs"
                raise ClaimError(cause, where=where, remedy=REMEDY)


def _layout(entry: NodeEntry) -> tuple[np.dtype[Any] | None, tuple[int, ...] | None, TensorType | None]:
    kind = entry.type
    if not isinstance(kind, TensorType):
        return None, None, None
    sizes = (array_layout(kind) or (None, None))[1]
    return numpy_dtype(kind.dtype), sizes, kind if sizes is None and kind.shape is not None else None


def _agrees(value: Any, kind: TensorType) -> bool:
    """True if the array matches the static sizes."""
    if kind.shape is None:
        return True
    differing = [size for size, actual in zip(kind.shape, value.shape) if isinstance(size, int) and size != actual]
    return len(kind.shape) == value.ndim and not differing


def _plain(value: Any, entry: NodeEntry, where: str) -> Any:
    if not isinstance(entry.type, TensorType):
        return value
    stated = f"for output {entry.name!r}, which is {entry.type}"
    if not isinstance(value, (np.ndarray, np.generic, DeviceArray)):
        raise RunError(f"it returned {type(value).__name__} {stated}", where=where)
    array: Any = value if isinstance(value, DeviceArray) else np.asarray(value)
    wanted = numpy_dtype(entry.type.dtype)
    if wanted.hasobject and array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype != wanted:
        order = "" if array.dtype.isnative else " in foreign byte order"
        raise RunError(f"it returned {array.dtype.name}{order} {stated}", where=where)
    return array
