"""ONNX's node tests, run by ONNX's own runner through sessions of onnxruntime. Started as a program, it prints one line of JSON
for each case: its name, and the last line of what went wrong, or null."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import unittest
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as state
from onnx.backend.base import Backend, BackendRep

import partita as pt
from partita.graph.protos import dtype_of
from partita.graph.readers.onnx.tensors import byte_size, unpacked
from partita.graph.types import ELEMENT_TYPES, PACKED, dtype_name, numpy_dtype
from partita.graph.writers.onnx.tensors import packed

NEWEST_IR = 13
"""The newest IR version that all tested versions of onnxruntime read."""

NEWEST_OPSET = 26
"""The newest opset whose ops they have; a case of a newer one is tried with this one too."""

PLAIN = ["CPUExecutionProvider"]


class Session(BackendRep):
    """A session that takes and gives numpy arrays of every element type."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **options: Any) -> list[Any]:
        wanted = self.session.get_inputs()
        given = inputs if isinstance(inputs, dict) else dict(zip([item.name for item in wanted], inputs, strict=False))
        tensors = all(item.type.startswith("tensor(") for item in (*wanted, *self.session.get_outputs()))
        strings = any("string" in item.type for item in (*wanted, *self.session.get_outputs()))
        if not tensors or strings:
            return self.session.run(None, {name: value for name, value in given.items() if value is not None})
        feeds = {name: ort_value(np.asarray(value)) for name, value in given.items() if value is not None}
        return [array_of(value) for value in self.session.run_with_ort_values(None, feeds)]


def ort_value(array: np.ndarray) -> onnxruntime.OrtValue:
    """The array as onnxruntime's tensor."""
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    dtype = dtype_name(array.dtype)
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, ELEMENT_TYPES[dtype].number)
    data = np.ascontiguousarray(packed(array, dtype))
    ctypes.memmove(value.data_ptr(), data.ctypes.data, data.nbytes)
    return value


def array_of(value: onnxruntime.OrtValue) -> np.ndarray:
    """onnxruntime's tensor as an array."""
    dtype, shape = dtype_of(value.element_type(), "an output"), tuple(value.shape())
    count = int(np.prod(shape))
    data = np.empty(byte_size(dtype, count), np.uint8)
    ctypes.memmove(data.ctypes.data, value.data_ptr() if data.size else 0, data.nbytes)
    flat = unpacked(data, PACKED[dtype], count) if dtype in PACKED else data
    return flat.view(numpy_dtype(dtype)).reshape(shape)


def backend(providers: list[str]) -> type[Backend]:
    """A backend in ONNX's sense: sessions with these providers."""

    class Sessions(Backend):
        @classmethod
        def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
            return True

        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"

        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> Session:
            model.ir_version = min(model.ir_version, NEWEST_IR)
            settings = onnxruntime.SessionOptions()
            settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            try:
                return Session(onnxruntime.InferenceSession(model.SerializeToString(), settings, providers, enable_fallback=0))
            except (state.Fail, state.InvalidGraph):
                for imported in model.opset_import:
                    imported.version = min(imported.version, NEWEST_OPSET)
                return Session(onnxruntime.InferenceSession(model.SerializeToString(), settings, providers, enable_fallback=0))

    return Sessions


def cases(providers: list[str]) -> type[unittest.TestCase]:
    """The cases, as methods."""
    from onnx.backend.test import BackendTest

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BackendTest(backend(providers), __name__).test_cases["OnnxBackendNodeModelTest"]


def names(kind: type[unittest.TestCase]) -> list[str]:
    """The names of all cases, in the runner's order."""
    return [name for name in vars(kind) if name.startswith("test_") and name.endswith("_cpu")]


def outcome(kind: type[unittest.TestCase], name: str) -> str | None:
    """The error in a case."""
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind(name).run(result)
    trouble = [*result.errors, *result.failures, *result.skipped]
    return trouble[0][1].strip().splitlines()[-1][:300] if trouble else None


if __name__ == "__main__":
    devices, every, *only = sys.argv[1:]
    os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"  # opsets newer than onnxruntime's are read as far as it knows them
    onnxruntime.set_default_logger_severity(4)
    provider = [pt.register_with_onnxruntime(devices=devices)] if devices != "plain" else []
    kind = cases([*provider, *PLAIN])
    for name in only or names(kind)[:: int(every)]:
        print(json.dumps([name, outcome(kind, name)]), flush=True)
