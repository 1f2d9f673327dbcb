"""Runs a fused subgraph on onnxruntime's tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np

from partita.accelerators.errors import RunError
from partita.accelerators.running.compiled_model import CompiledModel
from partita.graph.readers.onnx.tensors import BITS, byte_size, unpacked
from partita.graph.types import Array, TensorType, dtype_name, numpy_dtype
from partita.graph.writers.onnx.tensors import packed
from partita.onnxruntime_plugin.api import Api


class Compute:
    """OrtNodeComputeInfo: a compiled model, called with onnxruntime's tensors."""

    def __init__(self, api: Api, model: CompiledModel, memory: Any, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """`inputs` are the node's inputs in the model's order, `outputs` the model's outputs in the node's order."""
        self.api = api
        self.model = model
        """The model."""
        self.memory = memory
        """The structure that onnxruntime holds."""
        self.address = 0
        """The address of that structure."""
        self._inputs = [(i, *_dtype(node.output_types[0])) for i, node in zip(inputs, model.graph.inputs, strict=True)]
        self._outputs = list(enumerate(outputs))

    def run(self, context: int) -> None:
        """Compute: reads the inputs, runs the model, and writes the outputs."""
        arrays = [self._input(context, i, name, dtype) for i, name, dtype in self._inputs]
        results = self.model(*arrays)
        for i, number in self._outputs:
            self._write(context, i, results[number])

    def _input(self, context: int, i: int, name: str, dtype: np.dtype[Any]) -> Array:
        """An input as an array over onnxruntime's memory."""
        api, found, rank = self.api, c_void_p(), c_size_t()
        api.KernelContext_GetInput(context, i, byref(found))
        value = found.value
        if not value:
            raise RunError(f"onnxruntime hands no value for input {i}", where=f"model {self.model.graph.name!r}")
        api.GetTensorTypeAndShape(value, byref(found))
        kind = found.value
        api.GetDimensionsCount(kind, byref(rank))
        sizes = (c_int64 * rank.value)()
        api.GetDimensions(kind, sizes, rank)
        api.ReleaseTensorTypeAndShapeInfo(kind)
        shape = sizes[:]
        count = 1
        for size in shape:
            count *= size
        if not count:
            return np.empty(shape, dtype)
        api.GetTensorMutableData(value, byref(found))
        size = byte_size(name, count)
        memory = (ctypes.c_char * size).from_address(found.value or 0)
        if name in BITS:
            return unpacked(np.frombuffer(memory, np.uint8), BITS[name], count).view(dtype).reshape(shape)
        return np.ndarray(shape, dtype, memory)

    def _write(self, context: int, i: int, array: Array) -> None:
        """Copies an array to an output, which onnxruntime allocates."""
        api, found = self.api, c_void_p()
        rank = array.ndim
        api.KernelContext_GetOutput(context, i, (c_int64 * rank)(*array.shape), rank, byref(found))
        if array.size:
            api.GetTensorMutableData(found, byref(found))
            array = np.ascontiguousarray(packed(array, dtype_name(array.dtype)))
            ctypes.memmove(found.value or 0, array.__array_interface__["data"][0], array.nbytes)


def _dtype(value_type: Any) -> tuple[str, np.dtype[Any]]:
    assert isinstance(value_type, TensorType)
    return value_type.dtype, numpy_dtype(value_type.dtype)
