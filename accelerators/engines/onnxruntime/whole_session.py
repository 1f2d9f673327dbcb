"""An onnxruntime session for a whole file, called with arrays that need no conversion."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.accelerators.arrays.outputs import Outputs
from partita.accelerators.engines.onnxruntime.session_options import CPU, WRONG, quiet_options, set_running

SAME = "float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
"""Element types with the same name in numpy and onnxruntime."""

DTYPES = {f"tensor({name})": np.dtype(name) for name in SAME.split()}
DTYPES |= {"tensor(float)": np.dtype("float32"), "tensor(double)": np.dtype("float64")}
"""numpy's types by onnxruntime's names, as far as numpy has them."""

ALIGNMENT = 16
"""Alignment of arrays in bytes."""

PAUSE = 0.001
"""Polling interval in seconds while calls are still running."""


class WholeSession:
    """Answers a call if its arrays, and the outputs, are exactly as the file declares."""

    def __init__(self, session: Any) -> None:
        """Raises KeyError if the file declares types that no array has."""
        self._session = session
        self._inside = deque[int]()
        """An item for each running call."""
        self._inputs = {item.name: (DTYPES[item.type], item.shape) for item in session.get_inputs()}
        self._outputs = {item.name: (DTYPES[item.type], item.shape) for item in session.get_outputs()}
        self._names = {name: i for i, name in enumerate(self._outputs)}
        if len(self._outputs) < len(session.get_outputs()):
            raise KeyError("two outputs have one name")

    def outputs(self, args: Sequence[Any], named: Mapping[str, Any]) -> Outputs | None:
        """The outputs; None if the call or the outputs do not fit: then the model itself raises the error, if it is one."""
        if len(args) == 1 and isinstance(args[0], dict):
            arrays = {} if args[0].keys() & named.keys() else {**args[0], **named}
        elif args and (named or len(args) != len(self._inputs)):
            return None
        else:
            arrays = dict(zip(self._inputs, args)) if args else dict(named)
        sizes: dict[str, int] = {}
        if arrays.keys() != self._inputs.keys() or not all(_fits(arrays[name], *self._inputs[name], sizes) for name in arrays):
            return None
        self._inside.append(0)
        try:
            results = self._session.run(None, arrays)
        except Exception:  # noqa: BLE001  onnxruntime's errors have no common base class; the model itself raises its own
            return None
        finally:
            self._inside.pop()
        fit = all(_fits(value, *declared, sizes) for value, declared in zip(results, self._outputs.values(), strict=True))
        return Outputs(results, self._names) if fit else None

    def close(self) -> None:
        """Frees the session here, not at the end of a call: later calls do not use it."""
        session, self._session = self._session, None
        while self._inside:
            time.sleep(PAUSE)
        del session


def _fits(value: Any, dtype: np.dtype[Any], shape: Sequence[int | str | None], sizes: dict[str, int]) -> bool:
    """True for a non-empty array of this type with the engine's memory layout. Records the sizes of its symbols."""
    if type(value) is not np.ndarray or value.dtype != dtype or value.ndim != len(shape) or not value.size:
        return False
    if not value.flags.c_contiguous or value.__array_interface__["data"][0] % ALIGNMENT:
        return False
    wanted = (sizes.setdefault(dim, size) if isinstance(dim, str) else dim for size, dim in zip(value.shape, shape))
    return all(dim is None or size == dim for size, dim in zip(value.shape, wanted))


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
        return WholeSession(onnxruntime.InferenceSession(path, options, providers=[CPU], **how))
    except Exception:  # noqa: BLE001  onnxruntime's errors have no common base class; reading the file reports the error
        return None
