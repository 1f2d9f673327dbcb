"""The library's file: what its functions do, as far as this processor can tell, and where those of others lead."""

from __future__ import annotations

import ctypes
import struct

import pytest

from partita.onnxruntime_plugin.library import (
    ENDED,
    ESCAPED,
    EXPORTED,
    NAME,
    PROCESSORS,
    STATUS_CALLBACKS,
    VENDOR_ID,
    Library,
    library_file,
)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_file_names_its_functions(processor: str) -> None:
    file = library_file(processor)
    assert file.content[:4] == b"\x7fELF" and struct.unpack_from("<H", file.content, 18)[0] == PROCESSORS[processor].machine
    for name in EXPORTED:
        assert name.encode() + b"\0" in file.content
    assert len(set(file.functions.values())) == len(file.functions)


def test_literals_of_aarch64_lead_to_the_data() -> None:
    """Of a callback's instructions the first loads the flag, the seventh the callback's own word; all loads differ."""
    file = library_file("aarch64")
    seen = set()
    for name in STATUS_CALLBACKS:
        at = file.functions[name]
        words = struct.unpack_from("<14I", file.content, at)
        flag, slot = (at + 4 * i + 4 * (words[i] >> 5 & 0x7FFFF) for i in (0, 6))
        assert flag == file.data and slot > flag
        seen.add(slot)
        dead = at + 4 - 4 * ((1 << 19) - (words[1] >> 5 & 0x7FFFF))
        assert dead == file.functions["nothing" if name == "CreateEpFactories" else "ended"]
    assert len(seen) == len(STATUS_CALLBACKS)


@pytest.fixture
def library() -> Library:
    return Library()


def function(library: Library, name: str, result: object, *arguments: object) -> object:
    return ctypes.CFUNCTYPE(result, *arguments)(library.functions[name])


def test_plain_functions_answer_by_themselves(library: Library) -> None:
    memory = (ctypes.c_void_p * 40)()
    memory[NAME // 8] = 4711
    address = ctypes.addressof(memory)
    assert function(library, "name", ctypes.c_void_p, ctypes.c_void_p)(address) == 4711
    assert function(library, "vendor_id", ctypes.c_uint32)() == VENDOR_ID
    assert function(library, "nothing", ctypes.c_bool)() is False
    found = ctypes.c_void_p(1)
    assert function(library, "no_transfer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(0, ctypes.addressof(found)) is None
    assert found.value is None
    assert function(library, "create_state", ctypes.c_void_p, *[ctypes.c_void_p] * 3)(address, 0, ctypes.addressof(found)) is None
    assert found.value == address


def test_a_callback_returns_what_it_writes_and_an_error_otherwise(library: Library) -> None:
    """Whatever leaves the callback, and once the interpreter ends, the status is made of the library's own message."""
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7, ctypes.POINTER(ctypes.c_int64))
    messages: list[tuple[int, bytes]] = []
    answers: list[int | None] = [0, 640, None]

    def create_status(code: int, message: bytes) -> int:
        messages.append((code, message))
        return 32

    def callback(*given: object) -> None:
        assert given[:7] == (1, 2, 3, 4, 5, 6, 7)
        answer = answers.pop(0)
        if answer is not None:
            given[7][0] = answer

    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(create_status)
    call = kind(callback)
    library.connect(
        {"compute": ctypes.cast(call, ctypes.c_void_p).value}, ctypes.cast(create, ctypes.c_void_p).value
    )
    compute = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_int64] * 7)(library.functions["compute"])
    assert compute(1, 2, 3, 4, 5, 6, 7) is None
    assert compute(1, 2, 3, 4, 5, 6, 7) == 640
    assert compute(1, 2, 3, 4, 5, 6, 7) == 32 and messages == [(1, ESCAPED[:-1])]
    library._end()
    assert compute(1, 2, 3, 4, 5, 6, 7) == 32 and messages[1:] == [(1, ENDED[:-1])]
