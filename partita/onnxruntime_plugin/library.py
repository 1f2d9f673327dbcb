"""The shared library that onnxruntime loads as a plugin, written as bytes: no compiler is needed.

onnxruntime calls C functions. Each of the library's functions either answers by itself or jumps to an address in the library's
data, where Python stores its callbacks. Once `alive` is 0, because the interpreter ends, no function jumps any more: those that
return a status return an error, and a thread other than the main one sleeps there until the process is gone."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
from collections.abc import Callable, Mapping, Sequence

import attrs

from partita.accelerators.process.exit_barrier import when_the_door_is_closed
from partita.graph.errors import PartitaError

NAME, VENDOR, VERSION = 256, 264, 272
"""Offsets in a factory's or a provider's memory, behind onnxruntime's own fields, of the addresses of these texts."""

VENDOR_ID = 0x5041
"""The number that onnxruntime calls the vendor by."""

STATUS_CALLBACKS = (
    "CreateEpFactories", "devices", "create_provider", "validate", "capability", "compile", "compute",
)
"""The functions that jump to Python and return a status."""

OTHER_CALLBACKS = ("ReleaseEpFactory", "release_provider", "release_computes", "compatibility")
"""The functions that jump to Python and return nothing or a pointer."""

EXPORTED = ("CreateEpFactories", "ReleaseEpFactory")
"""The functions that onnxruntime finds by name."""

ENDED = b"the Python interpreter ends: Partita computes nothing any more\0"
"""The message of the error once `alive` is 0."""

_PAGE = 0x10000
"""Distance of code and data in memory: the largest page of these processors."""

_CREATE_STATUS, _ALIVE, _FIRST_SLOT = 0, 8, 16
"""Offsets in the data."""

_DATA = {name: _FIRST_SLOT + 8 * i for i, name in enumerate((*STATUS_CALLBACKS, *OTHER_CALLBACKS))}
"""Offset in the data of each callback's address."""


@attrs.frozen
class Code:
    """The instructions of one kind of processor. Functions get addresses relative to that of the code that they return."""

    machine: int
    """ELF's number of the processor."""
    jump: Callable[[int, int, int], bytes]
    """Jumps to the address in the data at the second place, or, if the word at the first is 0, to the third place."""
    answer: Callable[[int, int], bytes]
    """Calls the address in the data at the second place with (1, message at the first place); in a thread other than the main
    one it sleeps for ever."""
    text_at: Callable[[int], bytes]
    """Returns the address at this offset of the first argument."""
    number: Callable[[int], bytes]
    """Returns a number."""
    null_second: bytes
    """Stores 0 where the second argument points, and returns 0."""
    first_in_third: bytes
    """Stores the first argument where the third points, and returns 0."""


def _x86_jump(alive: int, slot: int, dead: int) -> bytes:
    return (
        b"\x83\x3d" + struct.pack("<iB", alive - 7, 0)  # cmp dword [rip + alive], 0
        + b"\x74\x06"  # je over the jump
        + b"\xff\x25" + struct.pack("<i", slot - 15)  # jmp [rip + slot]
        + b"\xe9" + struct.pack("<i", dead - 20)  # jmp dead
    )


def _x86_answer(message: int, create_status: int) -> bytes:
    return (
        b"\xb8\x27\0\0\0\x0f\x05"  # getpid
        b"\x41\x89\xc0"  # mov r8d, eax
        b"\xb8\xba\0\0\0\x0f\x05"  # gettid
        b"\x44\x39\xc0"  # cmp eax, r8d
        b"\x75\x12"  # jne sleep
        b"\xbf\1\0\0\0"  # mov edi, 1
        b"\x48\x8d\x35" + struct.pack("<i", message - 34)  # lea rsi, [rip + message]
        + b"\xff\x25" + struct.pack("<i", create_status - 40)  # jmp [rip + create_status]
        + b"\xb8\x22\0\0\0\x0f\x05"  # sleep: pause
        b"\xeb\xf7"  # jmp sleep
    )


X86_64 = Code(
    62, _x86_jump, _x86_answer,
    lambda offset: b"\x48\x8b\x87" + struct.pack("<i", offset) + b"\xc3",  # mov rax, [rdi + offset]; ret
    lambda number: b"\xb8" + struct.pack("<i", number) + b"\xc3",  # mov eax, number; ret
    b"\x48\xc7\x06\0\0\0\0\x31\xc0\xc3",  # mov qword [rsi], 0; xor eax, eax; ret
    b"\x48\x89\x3a\x31\xc0\xc3",  # mov [rdx], rdi; xor eax, eax; ret
)


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _literal(op: int, register: int, distance: int) -> int:
    """An instruction of AArch64 with a distance of 19 bits, counted in words."""
    return op | (distance >> 2 & 0x7FFFF) << 5 | register


def _arm_jump(alive: int, slot: int, dead: int) -> bytes:
    return _words(
        _literal(0x18000000, 16, alive),  # ldr w16, alive
        _literal(0x34000000, 16, 12),  # cbz w16, over the jump
        _literal(0x58000000, 16, slot - 8),  # ldr x16, slot
        0xD61F0200,  # br x16
        0x14000000 | (dead - 16 >> 2 & 0x3FFFFFF),  # b dead
    )


def _arm_answer(message: int, create_status: int) -> bytes:
    distance = message - 32
    return _words(
        0xD2801588, 0xD4000001,  # getpid
        0x2A0003E9,  # mov w9, w0
        0xD2801648, 0xD4000001,  # gettid
        0x6B09001F,  # cmp w0, w9
        _literal(0x54000001, 0, 20),  # b.ne sleep
        0x52800020,  # mov w0, 1
        0x10000001 | (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5,  # adr x1, message
        _literal(0x58000000, 16, create_status - 36),  # ldr x16, create_status
        0xD61F0200,  # br x16
        0xAA1F03E0, 0xAA1F03E1, 0xAA1F03E2, 0xAA1F03E3, 0xAA1F03E4,  # sleep: mov x0..x4, 0
        0xD2800928, 0xD4000001,  # ppoll
        0x14000000 | (-28 >> 2 & 0x3FFFFFF),  # b sleep
    )


AARCH64 = Code(
    183, _arm_jump, _arm_answer,
    lambda offset: _words(0xF9400000 | offset // 8 << 10, 0xD65F03C0),  # ldr x0, [x0, offset]; ret
    lambda number: _words(0x52800000 | number << 5, 0xD65F03C0),  # mov w0, number; ret
    _words(0xF900003F, 0x52800000, 0xD65F03C0),  # str xzr, [x1]; mov w0, 0; ret
    _words(0xF9000040, 0xD2800000, 0xD65F03C0),  # str x0, [x2]; mov x0, 0; ret
)

PROCESSORS = {"x86_64": X86_64, "aarch64": AARCH64}
"""The processors that a library can be written for."""


@attrs.frozen
class Image:
    """The library's file."""

    content: bytes
    """Its bytes."""
    functions: Mapping[str, int]
    """The address of each function, relative to where the library is loaded."""
    data: int
    """The address of its data, relative to the same."""


@functools.cache
def image(processor: str) -> Image:
    """The library for a processor, as `platform.machine()` names it."""
    code = PROCESSORS.get(processor)
    if code is None:
        raise PartitaError(
            f"no provider for onnxruntime can be written for a {processor!r} processor",
            remedy=f"They are written for {' and '.join(PROCESSORS)}",
        )
    plain = {
        "name": code.text_at(NAME), "vendor": code.text_at(VENDOR), "version": code.text_at(VERSION),
        "vendor_id": code.number(VENDOR_ID), "nothing": code.number(0), "no_transfer": code.null_second,
        "create_state": code.first_in_third,
    }
    names = (*EXPORTED, "partita_data")
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    offsets = [1 + sum(len(name) + 1 for name in names[:i]) for i in range(len(names))]
    hashes = struct.pack(f"<{len(names) + 4}I", 1, len(names) + 1, 1, 0, *range(2, len(names) + 1), 0)
    hash_at = 64 + 56 * 4
    symbols_at = _aligned(hash_at + len(hashes), 8)
    strings_at = symbols_at + 24 * (len(names) + 1)
    message_at = strings_at + len(strings)
    text_at = _aligned(message_at + len(ENDED), 64)
    dynamic = [(4, hash_at), (5, strings_at), (6, symbols_at), (10, len(strings)), (11, 24), (0, 0)]
    data = _PAGE + 16 * len(dynamic)
    text, functions = bytearray(), {}

    def add(name: str, instructions: bytes) -> None:
        functions[name] = text_at + len(text)
        text.extend(instructions.ljust(_aligned(len(instructions), 32), b"\0"))

    for name, instructions in plain.items():
        add(name, instructions)
    here = text_at + len(text)
    add("ended", code.answer(message_at - here, data + _CREATE_STATUS - here))
    for name, slot in _DATA.items():
        here = text_at + len(text)
        dead = functions["ended" if name in STATUS_CALLBACKS else "nothing"]
        add(name, code.jump(data + _ALIVE - here, data + slot - here, dead - here))
    places = [*(functions[name] for name in EXPORTED), data]
    kinds = [0x12] * len(EXPORTED) + [0x11]
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", offset, kind, 0, 1, place, 8)
        for offset, kind, place in zip(offsets, kinds, places, strict=True)
    )
    table = b"".join(struct.pack("<QQ", *entry) for entry in dynamic)
    data_size = len(table) + _FIRST_SLOT + 8 * len(_DATA)
    segments = [
        (1, 5, 0, text_at + len(text), _PAGE), (1, 6, _PAGE, data_size, _PAGE), (2, 6, _PAGE, len(table), 8),
        (0x6474E551, 6, 0, 0, 16),
    ]
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, code.machine, 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0)
    header += b"".join(struct.pack("<IIQQQQQQ", kind, flags, at, at, at, n, n, align) for kind, flags, at, n, align in segments)
    parts = [
        (0, header), (hash_at, hashes), (symbols_at, symbols), (strings_at, strings), (message_at, ENDED), (text_at, bytes(text)),
        (_PAGE, table),
    ]
    return Image(_laid_out(parts, _PAGE + data_size), functions, data)


def _aligned(number: int, to: int) -> int:
    return -(-number // to) * to


def _laid_out(parts: Sequence[tuple[int, bytes]], size: int) -> bytes:
    content = bytearray(size)
    for at, part in parts:
        content[at : at + len(part)] = part
    return bytes(content)


class Library:
    """A library of this process. It is loaded once more than onnxruntime does, so that its code stays until the process ends."""

    def __init__(self) -> None:
        written = image(platform.machine())
        self._file = os.memfd_create("partita_provider")
        with open(self._file, "wb", closefd=False) as file:
            file.write(written.content)
        self.path = f"/proc/self/fd/{self._file}"
        """The path by which this process loads it."""
        self._loaded = ctypes.CDLL(self.path)
        self._data = ctypes.addressof(ctypes.c_uint64.in_dll(self._loaded, "partita_data"))
        base = self._data - written.data
        self.functions = {name: base + place for name, place in written.functions.items()}
        """The address of each function."""
        when_the_door_is_closed(self._end)

    def connect(self, callbacks: Mapping[str, int], create_status: int = 0) -> None:
        """Stores the addresses of callbacks, and of onnxruntime's CreateStatus. From then on the functions call them."""
        for name, address in callbacks.items():
            self._word(_DATA[name]).value = address
        self._word(_CREATE_STATUS).value = create_status
        self._word(_ALIVE).value = 1

    def _end(self) -> None:
        self._word(_ALIVE).value = 0

    def _word(self, offset: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self._data + offset)
