"""Arrays that belong to their receiver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def array_ids(values: Iterable[Any]) -> set[int]:
    """The identities of these arrays, including those inside sequences."""
    ids: set[int] = set()
    for value in values:
        ids |= array_ids(value) if isinstance(value, list) else {id(value)}
    return ids


def owned(values: Sequence[Any], foreign: set[int], out: Sequence[Any] | None = None) -> list[Any]:
    """The values in memory that nothing else uses: in `out` if it fits, else in place if they own their memory, else copied.

    `foreign` are the identities of arrays that have another owner. Each returned array is added, so that no two of the
    values are the same array."""
    targets = out if out is not None else (None,) * len(values)
    return [_owned(value, target, foreign) for value, target in zip(values, targets, strict=True)]


def _owned(value: Any, target: np.ndarray[Any, Any] | None, foreign: set[int]) -> Any:
    if isinstance(value, list):
        return [_owned(item, None, foreign) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    if target is not None and target.shape == value.shape and target.dtype == value.dtype:
        np.copyto(target, value)
        return target
    fresh = value.flags.owndata and value.flags.c_contiguous and id(value) not in foreign
    array = value if fresh else np.array(value, order="C")
    foreign.add(id(array))
    return array
