"""Memory shared by two processes: one writes arrays to it and sends descriptions, the other reads the described arrays."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.descriptors import above_streams
from partita.graph.readers.onnx.load import load_onnx
from partita.graph.types import Array, dtype_name, numpy_dtype
from partita.graph.writers.onnx.model import ModelWriter

Description = Any
"""A value in JSON: offset, dtype and sizes."""

ALIGNMENT = 64
"""Alignment of each array in bytes."""

KEPT = 64 << 20
"""Number of bytes that stay allocated between two messages."""


class SharedMemory:
    """A memory file, mapped here and in the other process. It has no name, so that nothing is ever left behind."""

    def __init__(self, file: int | None = None) -> None:
        self.file = above_streams(os.memfd_create("partita-arrays")) if file is None else file
        """The file descriptor of the memory in this process."""
        self._bytes = np.empty(0, np.uint8)

    def reserve(self, size: int) -> Array:
        """The file's bytes, at least `size` of them."""
        there = os.fstat(self.file).st_size
        if there < size:
            there = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self.file, there)
        if self._bytes.size != there:
            self._bytes = np.frombuffer(mmap.mmap(self.file, there), np.uint8) if there else np.empty(0, np.uint8)
        return self._bytes

    def shrink(self) -> None:
        """Frees the memory of a large message. Neither process may still read it."""
        if os.fstat(self.file).st_size > KEPT:
            os.ftruncate(self.file, 0)

    def close(self) -> None:
        """Closes the file; the mapping is freed with the last array in it."""
        self._bytes = np.empty(0, np.uint8)
        os.close(self.file)


class Packing:
    """Values to be copied to the shared memory."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, Array]] = []
        self.end = 0
        """The offset of the next array, before alignment."""

    def place(self, size: int) -> int:
        """Reserves `size` bytes; returns their offset."""
        start = -(-self.end // ALIGNMENT) * ALIGNMENT
        self.end = start + size
        return start

    def put(self, array: Array) -> int:
        """Reserves room for the array's elements in C order, which `write` copies."""
        start = self.place(array.nbytes)
        self._pieces.append((start, array))
        return start

    def describe(self, value: Any) -> Description:
        """Adds a value: an array, text, bytes, a list of such, or None. Returns its description."""
        if value is None:
            return None
        if isinstance(value, (list, tuple)):
            return {"items": [self.describe(item) for item in value]}
        if isinstance(value, (bytes, bytearray, memoryview)):
            return {"bytes": self.put(np.frombuffer(value, np.uint8)), "size": len(value)}
        if not isinstance(value, (np.ndarray, np.generic)):
            raise AcceleratorError(f"a value is {type(value).__name__}, not an array")
        array = np.asarray(value)
        if array.dtype.kind in "OUS":
            return {"words": [_word(item) for item in array.reshape(-1).tolist()], "shape": array.shape}
        return _description(self.put(array), array.dtype, array.shape)

    def room(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Description:
        """Reserves room for an array that is written by other means."""
        return _description(self.place(math.prod(shape) * dtype.itemsize), dtype, shape)

    def write(self, memory: SharedMemory) -> None:
        """Copies everything to the memory."""
        data = memory.reserve(self.end)
        for start, array in self._pieces:
            if array.nbytes:
                data[start : start + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array


def described(value: Description, memory: SharedMemory) -> Any:
    """The described value; arrays are views of the memory."""
    if value is None:
        return None
    if "items" in value:
        return [described(item, memory) for item in value["items"]]
    if "words" in value:
        words = np.empty(len(value["words"]), object)
        words[:] = [_said(word) for word in value["words"]]
        return words.reshape(value["shape"])
    if "bytes" in value:
        return memory.reserve(0)[value["bytes"] : value["bytes"] + value["size"]].tobytes()
    start, dtype = value["at"], _dtype(value["dtype"])
    size = math.prod(value["shape"]) * dtype.itemsize
    return memory.reserve(0)[start : start + size].view(dtype).reshape(value["shape"])


class Weights:
    """Collects the large constants of a graph that is written as a model; an ExternalFile."""

    location = "weights"

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._known: dict[int, tuple[int, Array]] = {}

    def add(self, array: Array) -> tuple[int, int]:
        """The array's offset and length. An array shared by several constants is written once."""
        if id(array) not in self._known:
            self._known[id(array)] = self._packing.put(array), array
        return self._known[id(array)][0], array.nbytes


def describe_graph(graph: Any, packing: Packing) -> Mapping[str, Description]:
    """Describes a graph as a model, with its large constants separate."""
    model = ModelWriter(graph, drop_control=True, aside=Weights(packing)).model
    end = packing.end
    return {"model": packing.describe(model.SerializeToString()), "weights": end}


def described_graph(value: Mapping[str, Description], memory: SharedMemory) -> Any:
    """The described graph; its constants are copies."""
    weights = memory.reserve(0)[: value["weights"]].copy()
    return load_onnx(described(value["model"], memory), base_dir={Weights.location: weights})


def _word(item: Any) -> Any:
    return {"bytes": item.decode("latin-1")} if isinstance(item, bytes) else str(item)


def _said(word: Any) -> Any:
    return word["bytes"].encode("latin-1") if isinstance(word, dict) else word


def _description(start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Description:
    return {"at": start, "dtype": _name(dtype), "shape": shape}


def _name(dtype: np.dtype[Any]) -> str:
    """The dtype's name; includes the byte order if it is not native, and for numpy types that ONNX does not have."""
    if dtype.kind not in "biufcV" or dtype.names is not None:
        raise AcceleratorError(f"a value holds {dtype}, not numbers")
    return dtype.str if dtype.kind in "biufc" and dtype.isbuiltin != 2 else dtype_name(dtype)


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(name) if name[:1] in "<>|=" else numpy_dtype(name)
