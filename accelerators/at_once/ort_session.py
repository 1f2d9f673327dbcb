"""An onnxruntime session for a whole file, called with arrays that need no conversion."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.accelerators.onnxruntime.session_options import CPU, WRONG, quiet_options, set_running
from partita.accelerators.running.outputs import Outputs

DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
}
"""numpy's names of onnxruntime's tensor types, as far as numpy has them."""

ALIGNMENT = 16
"""Alignment of arrays in bytes."""

PAUSE = 0.001
"""Polling interval in seconds while calls are still running."""

Sizes = dict[str, int]
"""The sizes of symbols in a call."""


class WholeSession:
    """Answers a call if its arrays, and the outputs, are exactly as the file declares."""

    def __init__(self, session: Any) -> None:
        """Raises ValueError if the file declares types that no array has."""
        self._session = session
        self._inside = deque[int]()
        """An item for each running call."""
        self._inputs = {item.name: _Stated(item) for item in session.get_inputs()}
        self._outputs = {item.name: _Stated(item) for item in session.get_outputs()}
        self._names = {name: i for i, name in enumerate(self._outputs)}
        if len(self._outputs) < len(session.get_outputs()):
            raise ValueError("two outputs have one name")

    def outputs(self, args: Sequence[Any], named: Mapping[str, Any]) -> Outputs | None:
        """The outputs; None if the call or the outputs do not fit: then the model itself raises the error, if it is one."""
        arrays = self._by_name(args, named)
        sizes: Sizes = {}
        if arrays is None or not all(_fits(arrays[name], stated, sizes) for name, stated in self._inputs.items()):
            return None
        self._inside.append(0)
        try:
            results = self._session.run(None, arrays)
        except Exception:  # noqa: BLE001  onnxruntime's errors have no common base class; the model itself raises its own
            return None
        finally:
            self._inside.pop()
        fit = all(_fits(value, stated, sizes) for value, stated in zip(results, self._outputs.values(), strict=True))
        return Outputs(results, self._names) if fit else None

    def close(self) -> None:
        """Frees the session here, not at the end of a call: later calls do not use it."""
        session, self._session = self._session, None
        while self._inside:
            time.sleep(PAUSE)
        del session

    def _by_name(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any] | None:
        if len(args) == 1 and isinstance(args[0], dict):
            arrays = {**args[0], **named} if not (args[0].keys() & named.keys()) else {}
        elif named:
            arrays = dict(named) if not args else {}
        else:
            arrays = dict(zip(self._inputs, args)) if len(args) == len(self._inputs) else {}
        return arrays if arrays.keys() == self._inputs.keys() else None


class _Stated:
    """The declared type of an input or an output."""

    def __init__(self, item: Any) -> None:
        if item.type not in DTYPES:
            raise ValueError(f"{item.name!r} is {item.type}")
        self.dtype = np.dtype(DTYPES[item.type])
        self.sizes: list[int | str | None] = item.shape


def _fits(value: Any, stated: _Stated, sizes: Sizes) -> bool:
    """True for a non-empty array of this type with the engine's memory layout. Records the sizes of its symbols."""
    if type(value) is not np.ndarray or value.dtype != stated.dtype or value.ndim != len(stated.sizes) or not value.size:
        return False
    is_laid_out = value.flags.c_contiguous and value.__array_interface__["data"][0] % ALIGNMENT == 0
    return is_laid_out and all(_agrees(size, known, sizes) for size, known in zip(value.shape, stated.sizes))


def _agrees(size: int, stated: int | str | None, sizes: Sizes) -> bool:
    if stated is None:
        return True
    return size == (sizes.setdefault(stated, size) if isinstance(stated, str) else stated)


def whole_session(path: str, threads: int) -> WholeSession | None:
    """The session; None if onnxruntime is not installed, or refuses the file."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = quiet_options(onnxruntime, shares_threads=False)
    set_running(options, onnxruntime, level="all", threads=threads, between=1, spinning=True)
    try:
        how = {"disabled_optimizers": [*WRONG], "enable_fallback": 0}  # a fallback would be the same, and prints a message
        session = onnxruntime.InferenceSession(path, options, providers=[CPU], **how)
        return WholeSession(session)
    except Exception:  # noqa: BLE001  onnxruntime's errors have no common base class; reading the file reports the error
        return None
