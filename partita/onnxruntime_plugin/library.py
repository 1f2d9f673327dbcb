"""The shared library that onnxruntime loads as a plugin, written as bytes: no compiler is needed.

onnxruntime calls C functions. Each of the library's functions either answers by itself or calls an address in the library's data,
where Python stores its callbacks.

- A callback of a function that returns a status gets as its eighth argument the address to write it to. So an exception that
  leaves it, as an interrupt before its first line does, becomes an error instead of whatever ctypes would return.
- A status with its lowest bit set asks for Python's interrupt once onnxruntime has returned.
- While no Python has stored its callbacks there is no provider: CreateEpFactories makes none.
- Once `alive` is 0, because the interpreter ends, no callback is called any more: functions that return a status return an error,
  and a thread other than the main one sleeps there until the process is gone."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

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

ESCAPED = b"a signal, or an error of the interpreter, stopped Partita's provider\0"
"""The message of the error if an exception leaves a callback."""

_PAGE = 0x10000
"""Distance of code and data in memory: the largest page of these processors."""

_ALIVE, _CREATE_STATUS, _SET_INTERRUPT, _FIRST_SLOT = 0, 8, 16, 24
"""Offsets in the data: the flag, and the addresses of CreateStatus, of PyErr_SetInterrupt, and of callbacks."""

_DATA = {name: _FIRST_SLOT + 8 * i for i, name in enumerate((*STATUS_CALLBACKS, *OTHER_CALLBACKS))}
"""Offset in the data of each callback's address."""


@attrs.frozen
class Code:
    """The instructions of one kind of processor. Distances are relative to the first instruction of the function."""

    machine: int
    """ELF's number of the processor."""
    jump: Callable[[int, int, int], bytes]
    """Jumps to the callback at a slot, or elsewhere if the flag is 0: distances of flag, slot and the other place."""
    call: Callable[[int, int, int, int, int], bytes]
    """Calls the callback at a slot for a status, which it returns: distances of flag, slot, and the places to go to if the flag
    is 0, if no status was written, and if it asks for an interrupt."""
    fail: Callable[[int, int], bytes]
    """Returns a status: distances of the message, and of the address of CreateStatus."""
    sleep_or: Callable[[int], bytes]
    """Sleeps for ever in a thread other than the main one, in which it goes to the place at the distance."""
    interrupt: Callable[[int], bytes]
    """Calls PyErr_SetInterrupt, whose address is at the distance, and returns the status without its lowest bit."""
    text_at: Callable[[int], bytes]
    """Returns the address at this offset of the first argument."""
    number: Callable[[int], bytes]
    """Returns a number."""
    null_second: bytes
    """Stores 0 where the second argument points, and returns 0."""
    first_in_third: bytes
    """Stores the first argument where the third points, and returns 0."""


def _x86(instruction: bytes, target: int, end: int, rest: bytes = b"") -> bytes:
    """An instruction with the distance from its end to its target; `end` is where it ends in its function."""
    return instruction + struct.pack("<i", target - end) + rest


X86_64 = Code(
    62,
    jump=lambda alive, slot, dead: (
        _x86(b"\x83\x3d", alive, 7, b"\0")  # cmp dword [alive], 0
        + _x86(b"\x0f\x84", dead, 13)  # je dead
        + _x86(b"\xff\x25", slot, 19)  # jmp [slot]
    ),
    call=lambda alive, slot, dead, escaped, interrupted: (
        _x86(b"\x83\x3d", alive, 7, b"\0")  # cmp dword [alive], 0
        + _x86(b"\x0f\x84", dead, 13)  # je dead
        + b"\x48\x83\xec\x28"  # sub rsp, 40
        b"\x48\x8b\x44\x24\x30\x48\x89\x04\x24"  # mov rax, [rsp + 48]; mov [rsp], rax: the seventh argument
        b"\x48\x8d\x44\x24\x10\x48\x89\x44\x24\x08"  # lea rax, [rsp + 16]; mov [rsp + 8], rax: the eighth
        b"\x48\xc7\x00\xff\xff\xff\xff"  # mov qword [rax], -1
        + _x86(b"\xff\x15", slot, 49)  # call [slot]
        + b"\x48\x8b\x44\x24\x10\x48\x83\xc4\x28"  # mov rax, [rsp + 16]; add rsp, 40
        b"\x48\x83\xf8\xff"  # cmp rax, -1
        + _x86(b"\x0f\x84", escaped, 68)  # je escaped
        + b"\xa8\1"  # test al, 1
        + _x86(b"\x0f\x85", interrupted, 76)  # jne interrupted
        + b"\xc3"  # ret
    ),
    fail=lambda message, create_status: (
        b"\xbf\1\0\0\0"  # mov edi, 1
        + _x86(b"\x48\x8d\x35", message, 12)  # lea rsi, [message]
        + _x86(b"\xff\x25", create_status, 18)  # jmp [create_status]
    ),
    sleep_or=lambda awake: (
        b"\xb8\x27\0\0\0\x0f\x05\x41\x89\xc0"  # getpid; mov r8d, eax
        b"\xb8\xba\0\0\0\x0f\x05\x44\x39\xc0"  # gettid; cmp eax, r8d
        + _x86(b"\x0f\x84", awake, 26)  # je awake
        + b"\xb8\x22\0\0\0\x0f\x05\xeb\xf7"  # sleep: pause; jmp sleep
    ),
    interrupt=lambda set_interrupt: (
        b"\x50" + _x86(b"\xff\x15", set_interrupt, 7)  # push rax; call [set_interrupt]
        + b"\x58\x48\x83\xe0\xfe\xc3"  # pop rax; and rax, -2; ret
    ),
    text_at=lambda offset: b"\x48\x8b\x87" + struct.pack("<i", offset) + b"\xc3",  # mov rax, [rdi + offset]; ret
    number=lambda number: b"\xb8" + struct.pack("<i", number) + b"\xc3",  # mov eax, number; ret
    null_second=b"\x48\xc7\x06\0\0\0\0\x31\xc0\xc3",  # mov qword [rsi], 0; xor eax, eax; ret
    first_in_third=b"\x48\x89\x3a\x31\xc0\xc3",  # mov [rdx], rdi; xor eax, eax; ret
)


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _near(op: int, target: int, here: int, register: int = 0, bits: int = 19) -> int:
    """An instruction of AArch64 with the distance to its target in words; `here` is where it begins in its function."""
    return op | ((target - here) >> 2 & (1 << bits) - 1) << (0 if bits == 26 else 5) | register


def _address(target: int, here: int) -> int:
    """adr x1, target."""
    distance = target - here
    return 0x10000001 | (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5


AARCH64 = Code(
    183,
    jump=lambda alive, slot, dead: _words(
        _near(0x18000000, alive, 0, 16), _near(0x34000000, dead, 4, 16),  # ldr w16, alive; cbz w16, dead
        _near(0x58000000, slot, 8, 16), 0xD61F0200,  # ldr x16, slot; br x16
    ),
    call=lambda alive, slot, dead, escaped, interrupted: _words(
        _near(0x18000000, alive, 0, 16), _near(0x34000000, dead, 4, 16),  # ldr w16, alive; cbz w16, dead
        0xA9BE7BFD,  # stp x29, x30, [sp, -32]!
        0x92800010, 0xF9000BF0, 0x910043E7,  # mov x16, -1; str x16, [sp, 16]; add x7, sp, 16: the eighth argument
        _near(0x58000000, slot, 24, 16), 0xD63F0200,  # ldr x16, slot; blr x16
        0xF9400BE0, 0xA8C27BFD,  # ldr x0, [sp, 16]; ldp x29, x30, [sp], 32
        0xB100041F, _near(0x54000000, escaped, 44),  # cmn x0, 1; b.eq escaped
        _near(0x37000000, interrupted, 48, bits=14), 0xD65F03C0,  # tbnz x0, 0, interrupted; ret
    ),
    fail=lambda message, create_status: _words(
        0x52800020, _address(message, 4),  # mov w0, 1; adr x1, message
        _near(0x58000000, create_status, 8, 16), 0xD61F0200,  # ldr x16, create_status; br x16
    ),
    sleep_or=lambda awake: _words(
        0xD2801588, 0xD4000001, 0x2A0003E9,  # getpid; mov w9, w0
        0xD2801648, 0xD4000001, 0x6B09001F,  # gettid; cmp w0, w9
        _near(0x54000000, awake, 24),  # b.eq awake
        0xAA1F03E0, 0xAA1F03E1, 0xAA1F03E2, 0xAA1F03E3, 0xAA1F03E4,  # sleep: mov x0..x4, 0
        0xD2800928, 0xD4000001, _near(0x14000000, 28, 56, bits=26),  # ppoll; b sleep
    ),
    interrupt=lambda set_interrupt: _words(
        0xA9BF7BE0, _near(0x58000000, set_interrupt, 4, 16), 0xD63F0200,  # stp x0, x30, [sp, -16]!; ldr x16, ...; blr x16
        0xA8C17BE0, 0x927FF800, 0xD65F03C0,  # ldp x0, x30, [sp], 16; and x0, x0, -2; ret
    ),
    text_at=lambda offset: _words(0xF9400000 | offset // 8 << 10, 0xD65F03C0),  # ldr x0, [x0, offset]; ret
    number=lambda number: _words(0x52800000 | number << 5, 0xD65F03C0),  # mov w0, number; ret
    null_second=_words(0xF900003F, 0x52800000, 0xD65F03C0),  # str xzr, [x1]; mov w0, 0; ret
    first_in_third=_words(0xF9000040, 0xD2800000, 0xD65F03C0),  # str x0, [x2]; mov x0, 0; ret
)

PROCESSORS = {"x86_64": X86_64, "aarch64": AARCH64}
"""The processors that a library can be written for."""


@attrs.frozen
class LibraryFile:
    """The library's file."""

    content: bytes
    """Its bytes."""
    functions: Mapping[str, int]
    """The address of each function, relative to where the library is loaded."""
    data: int
    """The address of its data, relative to the same."""


@functools.cache
def library_file(processor: str) -> LibraryFile:
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
    ended_at = strings_at + len(strings)
    escaped_at = ended_at + len(ENDED)
    text_at = _aligned(escaped_at + len(ESCAPED), 64)
    dynamic = [(4, hash_at), (5, strings_at), (6, symbols_at), (10, len(strings)), (11, 24), (0, 0)]
    data = _PAGE + 16 * len(dynamic)
    text, functions = bytearray(), {}

    def add(name: str, instructions: Callable[[Callable[[int], int]], bytes]) -> None:
        """Adds a function; the instructions are given a function from an address to its distance."""
        here = functions[name] = text_at + len(text)
        written = instructions(lambda place: place - here)
        text.extend(written.ljust(_aligned(len(written), 16), b"\0"))

    for name, instructions in plain.items():
        add(name, _always(instructions))
    add("fail_ended", lambda far: code.fail(far(ended_at), far(data + _CREATE_STATUS)))
    add("fail_escaped", lambda far: code.fail(far(escaped_at), far(data + _CREATE_STATUS)))
    add("ended", lambda far: code.sleep_or(far(functions["fail_ended"])))
    add("interrupt", lambda far: code.interrupt(far(data + _SET_INTERRUPT)))
    dead, escaped, interrupted = (functions[name] for name in ("ended", "fail_escaped", "interrupt"))
    for name in STATUS_CALLBACKS:
        no = functions["nothing"] if name == "CreateEpFactories" else dead
        add(name, partial(_calling, code, data, data + _DATA[name], (no, escaped, interrupted)))
    for name in OTHER_CALLBACKS:
        add(name, partial(_jumping, code, data, data + _DATA[name], functions["nothing"]))
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
        (0, header), (hash_at, hashes), (symbols_at, symbols), (strings_at, strings), (ended_at, ENDED + ESCAPED),
        (text_at, bytes(text)), (_PAGE, table),
    ]
    return LibraryFile(_laid_out(parts, _PAGE + data_size), functions, data)


_Distance = Callable[[int], int]


def _always(instructions: bytes) -> Callable[[_Distance], bytes]:
    return lambda far: instructions


def _calling(code: Code, alive: int, slot: int, others: tuple[int, int, int], far: _Distance) -> bytes:
    return code.call(far(alive), far(slot), *map(far, others))


def _jumping(code: Code, alive: int, slot: int, dead: int, far: _Distance) -> bytes:
    return code.jump(far(alive), far(slot), far(dead))


def _aligned(number: int, to: int) -> int:
    return -(-number // to) * to


def _laid_out(parts: Sequence[tuple[int, bytes]], size: int) -> bytes:
    content = bytearray(size)
    for at, part in parts:
        content[at : at + len(part)] = part
    return bytes(content)


class Library:
    """A library of this process. It is loaded once more than onnxruntime does, so that its code stays until the process ends."""

    def __init__(self, file: Path | None = None) -> None:
        """Loads it from this file, if it holds this version's library, or else from memory."""
        written = library_file(platform.machine())
        self.path = str(file)
        """The path by which this process loads it."""
        if file is None or not file.exists() or file.read_bytes() != written.content:
            self._file = os.memfd_create("partita_provider")
            self.path = f"/proc/self/fd/{self._file}"
            with open(self._file, "wb", closefd=False) as memory:
                memory.write(written.content)
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
        self._word(_SET_INTERRUPT).value = ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, ctypes.c_void_p).value or 0
        self._word(_ALIVE).value = 1

    def _end(self) -> None:
        self._word(_ALIVE).value = 0

    def _word(self, offset: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self._data + offset)
