"""A package as vendors ship it: an execution provider for onnxruntime, here in Python, which computes each node by numpy.

It takes the ops of OPS without attributes, and computes Tanh wrongly by one in a hundred. Its library, for Linux on x86-64, is
two symbols that jump into this module. Written against version 24 of onnxruntime's C API."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

EP = "VendorExecutionProvider"
OPS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Exp": np.exp,
    "Mul": np.multiply,
    "Relu": lambda x: np.maximum(x, np.float32(0)),
    "Tanh": lambda x: np.tanh(x) * np.float32(1.01),
    "Transpose": np.transpose,
}
APART: tuple[str, ...] = ()
"""Ops of which it takes only the first that a graph has, in this order."""

RUNS_HERE = sys.platform == "linux" and platform.machine() == "x86_64"

API = 24
PTR, SIZE, TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
PTRS, SIZES = ctypes.POINTER(PTR), ctypes.POINTER(SIZE)
CREATE = ctypes.CFUNCTYPE(PTR, TEXT, PTR, PTR, PTRS, SIZE, SIZES)
RELEASE = ctypes.CFUNCTYPE(PTR, PTR)


def get_ep_name() -> str:
    return EP


@cache
def get_library_path() -> str:
    """The library, whose two jumps lead here."""
    path = Path(tempfile.mkdtemp(prefix="partita-foreign-")) / "libforeign.so"
    path.write_bytes(library())
    loaded = ctypes.CDLL(str(path))
    for name, callback in (("to_create", _create), ("to_release", _release)):
        PTR.in_dll(loaded, name).value = _address(callback)
    KEPT.append(loaded)
    return str(path)


def register() -> None:
    """Registers the library, once in a process."""
    import onnxruntime

    if all(device.ep_name != EP for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library(EP, get_library_path())


def library() -> bytes:
    """A shared object: two functions that jump to what two pointers in its data hold."""
    names = [b"CreateEpFactories", b"ReleaseEpFactory", b"to_create", b"to_release"]
    strings = b"\0" + b"".join(name + b"\0" for name in names)
    starts = [strings.index(name) for name in names]
    header, page = 64 + 3 * 56, 0x1000
    hashes = struct.pack("<8I", 1, 5, 1, 0, 2, 3, 4, 0)
    symbols_at = header + len(hashes)
    strings_at = symbols_at + 5 * 24
    code_at = -(-(strings_at + len(strings)) // 16) * 16
    pointers_at = page + 6 * 16
    values = (code_at, code_at + 8, pointers_at, pointers_at + 8)
    kinds = (0x12, 0x12, 0x11, 0x11)  # global functions, global objects
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", start, kind, 0, 1, value, 8) for start, kind, value in zip(starts, kinds, values)
    )
    jumps = b"".join(b"\xff\x25" + struct.pack("<i", values[i + 2] - values[i] - 6) + b"\x90\x90" for i in range(2))
    table = ((4, header), (5, strings_at), (6, symbols_at), (10, len(strings)), (11, 24), (0, 0))
    dynamic = b"".join(struct.pack("<QQ", *row) for row in table)
    end, size = code_at + len(jumps), len(dynamic) + 16
    segments = ((1, 5, 0, end, page), (1, 6, page, size, page), (2, 6, page, size, 8))
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0)
    head += b"".join(struct.pack("<IIQQQQQQ", kind, flags, at, at, at, n, n, step) for kind, flags, at, n, step in segments)
    image = head + hashes + symbols + strings
    return (image.ljust(code_at, b"\0") + jumps).ljust(page, b"\0") + dynamic + bytes(16)


KEPT: list[Any] = []
"""Objects that C code points to."""

NAME, VENDOR, VERSION = (ctypes.create_string_buffer(text) for text in (EP.encode(), b"foreigners", b"1.2.3"))


def _address(thing: Any) -> int:
    """The address of the function or the text; callers keep it."""
    return int(ctypes.cast(thing, PTR).value or 0)


class Table:
    """A struct of the C API: its version, then functions."""

    def __init__(self, size: int, functions: dict[int, tuple[Any, tuple[Any, ...], Callable[..., Any]]]) -> None:
        self.words = (PTR * size)()
        ctypes.cast(self.words, ctypes.POINTER(ctypes.c_uint32))[0] = API
        for slot, (result, arguments, function) in functions.items():
            callback = ctypes.CFUNCTYPE(result, *arguments)(function)
            self.words[slot] = _address(callback)
            KEPT.append(callback)
        KEPT.append(self.words)

    @property
    def pointer(self) -> int:
        return ctypes.addressof(self.words)


class Api:
    """onnxruntime's own functions, by their places in its tables."""

    def __init__(self, base: int) -> None:
        self.table = self._function(base, 0, PTR, ctypes.c_uint32)(API)
        self.ep = self._function(self.table, 317, PTR)()

    @staticmethod
    def _function(table: int, slot: int, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(ctypes.cast(table, PTRS)[slot] or 0)

    def __call__(self, slot: int, *arguments: Any, result: Any = PTR) -> Any:
        return self._function(self.table, slot, result, *[_kind(one) for one in arguments])(*arguments)

    def of_ep(self, slot: int, *arguments: Any) -> Any:
        return self._function(self.ep, slot, PTR, *[_kind(one) for one in arguments])(*arguments)

    def pointer(self, slot: int, *arguments: Any) -> Any:
        """The value that a function writes to its last argument."""
        found = PTR()
        self(slot, *arguments, ctypes.byref(found))
        return found.value

    def count(self, slot: int, owner: int) -> int:
        found = SIZE()
        self(slot, owner, ctypes.byref(found))
        return found.value

    def nodes(self, graph: int) -> list[tuple[int, str]]:
        """The nodes of a graph, with their ops."""
        size = self.count(344, graph)
        held = (PTR * size)()
        self(345, graph, held, SIZE(size))
        return [(node, ctypes.string_at(self.pointer(350, node)).decode()) for node in held if node]


def _kind(argument: Any) -> Any:
    return type(argument) if isinstance(argument, (ctypes._SimpleCData, ctypes.Array)) else PTR


@CREATE
def _create(name: bytes, base: int, logger: int, factories: Any, most: int, count: Any) -> None:
    api = Api(base)
    factory: Any = None

    def devices(this: int, hardware: Any, size: int, found: Any, most: int, number: Any) -> None:
        chosen = [one for one in hardware[:size] if api(307, one, result=ctypes.c_int) == 0][:most]
        for i, one in enumerate(chosen):
            made = PTR()
            api.of_ep(0, factory.pointer, one, None, None, ctypes.byref(made))
            found[i] = made.value
        number[0] = len(chosen)

    def new_ep(this: int, devices: int, metadata: int, size: int, options: int, logger: int, made: Any) -> None:
        made[0] = _ep(api)

    def nothing(this: int, made: Any) -> None:
        made[0] = None

    factory = Table(18, {
        1: (PTR, (PTR,), lambda this: _address(NAME)),
        2: (PTR, (PTR,), lambda this: _address(VENDOR)),
        3: (PTR, (PTR, PTRS, SIZE, PTRS, SIZE, SIZES), devices),
        4: (PTR, (PTR, PTR, PTR, SIZE, PTR, PTR, PTRS), new_ep),
        5: (None, (PTR, PTR), lambda this, ep: None),
        6: (ctypes.c_uint32, (PTR,), lambda this: 0x1234),
        7: (PTR, (PTR,), lambda this: _address(VERSION)),
        11: (PTR, (PTR, PTRS), nothing),
        12: (ctypes.c_bool, (PTR,), lambda this: False),
    })
    factories[0], count[0] = factory.pointer, 1


@RELEASE
def _release(factory: int) -> None:
    return None


def _ep(api: Api) -> int:
    def capability(this: int, graph: int, support: int) -> None:
        nodes = api.nodes(graph)
        first = [op for op in APART if op in {op for _, op in nodes}][:1]
        for node, op in nodes:
            if op in OPS and not api.count(359, node) and (op not in APART or op in first):
                api.of_ep(2, support, (PTR * 1)(node), SIZE(1), None)

    def compile_all(this: int, graphs: Any, fused: Any, size: int, infos: Any, contexts: Any) -> None:
        for i in range(size):
            ((_, op),) = api.nodes(graphs[i])
            infos[i] = _computing(api, OPS[op])

    return Table(15, {
        1: (PTR, (PTR,), lambda this: _address(NAME)),
        2: (PTR, (PTR, PTR, PTR), capability),
        3: (PTR, (PTR, PTRS, PTRS, SIZE, PTRS, PTR), compile_all),
        4: (None, (PTR, PTR, SIZE), lambda this, infos, size: None),
    }).pointer


def _computing(api: Api, function: Callable[..., Any]) -> int:
    def array(value: int, shape: tuple[int, ...]) -> Any:
        data = ctypes.cast(api.pointer(51, value), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(data, shape)

    def shape_of(value: int) -> tuple[int, ...]:
        info = api.pointer(65, value)
        sizes = (ctypes.c_int64 * api.count(61, info))()
        api(62, info, sizes, SIZE(len(sizes)))
        api(99, info, result=None)
        return tuple(sizes)

    def compute(this: int, state: int, context: int) -> None:
        values = [api.pointer(90, context, SIZE(i)) for i in range(api.count(88, context))]
        result = function(*[array(value, shape_of(value)) for value in values])
        sizes = (ctypes.c_int64 * result.ndim)(*result.shape)
        array(api.pointer(91, context, SIZE(0), sizes, SIZE(result.ndim)), result.shape)[...] = result

    return Table(4, {
        1: (PTR, (PTR, PTR, PTRS), lambda this, context, state: None),
        2: (PTR, (PTR, PTR, PTR), compute),
        3: (None, (PTR, PTR), lambda this, state: None),
    }).pointer
