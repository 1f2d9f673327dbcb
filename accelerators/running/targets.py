"""The arrays for the outputs of a call that the caller passes as `out`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.accelerators.arrays.on_device import (
    ON_DEVICE,
    Destination,
    DeviceArray,
    Target,
    Wanted,
    on_device,
)
from partita.accelerators.errors import InputError
from partita.graph.errors import did_you_mean
from partita.graph.types import TensorType, Type, dtype_name, numpy_dtype


def out_arrays(out: Any, names: Sequence[str], types: Sequence[Type | None], where: str) -> list[Wanted | None]:
    """For each output the array to fill, from the caller's `out`: one array, several in order, or some by name. The word "device"
    in place of an array requests a new one where the output is computed; on its own it does so for all outputs."""
    listed: list[Any]
    if isinstance(out, str):
        listed = [out] * len(names)
    elif isinstance(out, Mapping):
        unknown = [name for name in out if name not in names]
        if unknown:
            remedy = did_you_mean(str(unknown[0]), names) or f"The outputs are {', '.join(names)}"
            raise InputError(f"there is no output {unknown[0]!r}", where=f"{where}, out", remedy=remedy)
        listed = [out.get(name) for name in names]
    elif isinstance(out, (list, tuple)):
        listed = list(out)
    elif isinstance(out, np.ndarray) or _target(out) is not None:
        listed = [out]
    else:
        cause = f"{type(out).__name__} is no array to write to"
        raise InputError(cause, where=f"{where}, out", remedy="Give an array, a list of them, or a dictionary by name")
    if len(listed) != len(names):
        cause = f"{len(listed)} arrays are given for {len(names)} outputs"
        raise InputError(cause, where=f"{where}, out", remedy="Give None for others")
    for i, (array, name, kind) in enumerate(zip(listed, names, types)):
        if array is None:
            continue
        title = f"{where}, out for {name!r}"
        if isinstance(array, str):
            listed[i] = _destination(array, title)
            continue
        target = _target(array)
        if target is None:
            cause = "it is no numpy array that may be written to, nor one on a device in one piece"
            raise InputError(cause, where=title)
        if isinstance(kind, TensorType):
            _check_target(target, kind, title)
        listed[i] = target
        if any(_share(target, other) for other in listed[:i]):
            raise InputError("it shares memory with the array for another output", where=title)
    return listed


def _target(value: Any) -> Target | None:
    """The value as a writable array; None if it is none."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else None
    try:
        there = on_device(value)
    except (ValueError, BufferError, RuntimeError):  # from another library: not contiguous, or it requires a gradient
        return None
    return there if isinstance(there, DeviceArray) else None


def _destination(word: str, title: str) -> Destination:
    if word != ON_DEVICE.value:
        remedy = f'Say "{ON_DEVICE.value}", or give an array of pt.to_device'
        raise InputError(f"{word!r} is nowhere for an output to be", where=title, remedy=remedy)
    return ON_DEVICE


def _share(one: Target, other: Wanted | None) -> bool:
    """True if two arrays may share memory."""
    if isinstance(one, DeviceArray):
        return one.shares(other)
    return isinstance(other, np.ndarray) and np.may_share_memory(one, other)


def _check_target(array: Target, kind: TensorType, title: str) -> None:
    fits = kind.shape is None or (
        len(kind.shape) == array.ndim and all(not isinstance(d, int) or d == n for d, n in zip(kind.shape, array.shape))
    )
    if not fits or array.dtype != numpy_dtype(kind.dtype):
        raise InputError(f"the output is {kind}, and the array {dtype_name(array.dtype)}{list(array.shape)}", where=title)
