"""Memory that two processes see: one writes arrays to it and describes them, the other reads what is described."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.descriptors import above_streams
from partita.graph.types import Array, dtype_name, numpy_dtype

Description = Any
"""A value as JSON says it: where its bytes are, its dtype and its sizes."""

ALIGNMENT = 64
"""Where the bytes of each array begin: at a multiple of this."""

KEPT = 64 << 20
"""The number of bytes that stay allotted between two messages."""


class SharedMemory:
    """A file in memory, mapped here and in the other process. It has no name, so that nothing of it is ever left behind."""

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
        """Give back what a large message has taken. Neither process may still read it."""
        if os.fstat(self.file).st_size > KEPT:
            os.ftruncate(self.file, 0)

    def close(self) -> None:
        """The mapping goes with the last array that lies in it."""
        self._bytes = np.empty(0, np.uint8)
        os.close(self.file)


class Packing:
    """Values on their way into the memory."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, Array]] = []
        self.end = 0
        """Where the next array may begin."""

    def place(self, size: int) -> int:
        """Room for so many bytes; where it begins."""
        start = -(-self.end // ALIGNMENT) * ALIGNMENT
        self.end = start + size
        return start

    def put(self, array: Array) -> int:
        """Room for the array's elements in C order, to which `write` copies them."""
        start = self.place(array.nbytes)
        self._pieces.append((start, array))
        return start

    def describe(self, value: Any) -> Description:
        """The value, to be written: an array, text, bytes, a list of such, or None."""
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
        """Room for an array that is written otherwise."""
        return _description(self.place(math.prod(shape) * dtype.itemsize), dtype, shape)

    def write(self, memory: SharedMemory) -> None:
        """Copy all of it into the memory."""
        data = memory.reserve(self.end)
        for start, array in self._pieces:
            if array.nbytes:
                data[start : start + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array


def described(value: Description, memory: SharedMemory) -> Any:
    """The value that was described; arrays are views of the memory."""
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
    """Takes the large constants of a graph that is written as a model: see `partita.graph.writers.onnx.tensors.Aside`."""

    location = "weights"

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._known: dict[int, tuple[int, Array]] = {}

    def add(self, array: Array) -> tuple[int, int]:
        """The array's place and length. One that several constants share is written once."""
        if id(array) not in self._known:
            self._known[id(array)] = self._packing.put(array), array
        return self._known[id(array)][0], array.nbytes


def describe_graph(graph: Any, packing: Packing) -> Mapping[str, Description]:
    """A graph as a model, its large constants beside it."""
    from partita.graph.writers.onnx.model import Writing

    model = Writing(graph, drop_control=True, aside=Weights(packing)).model
    end = packing.end
    return {"model": packing.describe(model.SerializeToString()), "weights": end}


def described_graph(value: Mapping[str, Description], memory: SharedMemory) -> Any:
    """The graph that was described; its constants are copies."""
    from partita.graph.readers.onnx.load import load_onnx

    weights = memory.reserve(0)[: value["weights"]].copy()
    return load_onnx(described(value["model"], memory), base_dir={Weights.location: weights})


def _word(item: Any) -> Any:
    return {"bytes": item.decode("latin-1")} if isinstance(item, bytes) else str(item)


def _said(word: Any) -> Any:
    return word["bytes"].encode("latin-1") if isinstance(word, dict) else word


def _description(start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Description:
    return {"at": start, "dtype": _name(dtype), "shape": shape}


def _name(dtype: np.dtype[Any]) -> str:
    """The dtype's name; with its byte order where that is not this machine's, and for numpy types that ONNX does not have."""
    if dtype.kind not in "biufcV" or dtype.names is not None:
        raise AcceleratorError(f"a value holds {dtype}, not numbers")
    return dtype.str if dtype.kind in "biufc" and dtype.isbuiltin != 2 else dtype_name(dtype)


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(name) if name[:1] in "<>|=" else numpy_dtype(name)
