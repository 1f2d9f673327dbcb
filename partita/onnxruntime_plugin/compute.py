"""Runs a fused subgraph on onnxruntime's tensors."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import addressof, c_int64
from typing import Any

import numpy as np

from partita.accelerators.errors import InputError
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.graph.readers.onnx.tensors import byte_size, unpacked
from partita.graph.types import PACKED, Array, TensorType, dtype_name, numpy_dtype
from partita.graph.writers.onnx.tensors import packed
from partita.onnxruntime_plugin.api import Api
from partita.onnxruntime_plugin.machine_code import machine_code

_DIMENSIONS = 64
"""The largest number of dimensions of an array."""

_Words = c_int64 * (_DIMENSIONS + 1)
"""Memory that functions of onnxruntime write to: sizes, and one more word."""

_Memory = ctypes.c_char * (1 << 46)
"""All memory from an address on."""


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
        self._machine_code = machine_code(api, model, memory, inputs, outputs)

    def run(self, context: int) -> None:
        """Compute: reads the inputs, runs the model, and writes the outputs."""
        words = _Words()
        address = addressof(words)
        arrays = [self._input(context, i, name, dtype, words, address) for i, name, dtype in self._inputs]
        results = self.model(*arrays)
        for i, number in self._outputs:
            self._write(context, i, results[number], words, address)
        if self._machine_code is not None:
            self._machine_code.learn(arrays)

    def _input(self, context: int, i: int, name: str, dtype: np.dtype[Any], words: Any, address: int) -> Array:
        """An input as an array over onnxruntime's memory."""
        fast, check = self.api.fast, self.api.check
        check(fast.input(context, i, address))
        value = words[0]
        if not value:
            raise InputError(f"onnxruntime hands no value for input {i}", where=f"model {self.model.graph.name!r}")
        check(fast.shape(value, address))
        shape_info = words[0]
        fast.rank(shape_info, address)
        rank = words[0]
        if rank <= _DIMENSIONS:
            fast.sizes(shape_info, address, rank)
        fast.release_shape(shape_info)
        if rank > _DIMENSIONS:
            cause = f"input {i} has {rank} dimensions, and {_DIMENSIONS} are possible"
            raise InputError(cause, where=f"model {self.model.graph.name!r}", remedy="Reshape it before")
        shape = words[:rank]
        count = math.prod(shape)
        if not count:
            return np.empty(shape, dtype)
        check(fast.data(value, address))
        memory: Any = _Memory.from_address(words[0])
        if name in PACKED:
            data = np.frombuffer(memory, np.uint8, byte_size(name, count))
            return unpacked(data, PACKED[name], count).view(dtype).reshape(shape)
        return np.ndarray(shape, dtype, memory)

    def _write(self, context: int, i: int, array: Array, words: Any, address: int) -> None:
        """Copies an array to an output, which onnxruntime allocates."""
        fast, rank = self.api.fast, array.ndim
        words[:rank] = array.shape
        self.api.check(fast.output(context, i, address, rank, address + 8 * _DIMENSIONS))
        if array.size:
            fast.data(words[_DIMENSIONS], address)
            if array.dtype.isbuiltin != 1:
                array = packed(array, dtype_name(array.dtype))
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
            ctypes.memmove(words[0], array.__array_interface__["data"][0], array.nbytes)


def _dtype(value_type: Any) -> tuple[str, np.dtype[Any]]:
    assert isinstance(value_type, TensorType)
    return value_type.dtype, numpy_dtype(value_type.dtype)
