"""Input and output of a linker: data as an ELF object file, and the undefined symbols of a linked library."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable

from partita.accelerators.errors import CompileError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_RELOCATABLE, _CURRENT = 1, 1
"""Type and version of a relocatable file."""

_DATA, _SYMBOLS, _STRINGS, _DYNAMIC_SYMBOLS = 1, 2, 3, 11
"""Section types."""

_WEAK = 2
"""Binding of a symbol that may be missing."""

_GLOBAL_OBJECT = 1 << 4 | 1
"""A global symbol for data."""

_UNLISTED = frozenset({"pthread_atfork"})
"""Functions that glibc keeps only for libraries without symbol versions: its loader finds them, dlsym does not."""

_SECTION_NAMES = (".rodata", ".symtab", ".strtab", ".note.GNU-stack")
"""The last section is empty and marks the stack as not executable."""


def is_elf(code: bytes) -> bool:
    """True for a 64-bit little-endian ELF file, the only kind that is read and written here."""
    return code.startswith(b"\x7fELF\x02\x01")


def data_object(name: str, data: bytes, like: bytes) -> bytes:
    """An object file that holds the data under this name, for the processor of another object file: a header, a section of
    read-only data, and one symbol at its beginning. LLVM would take as long to write it as to compile a small kernel."""
    identity, _, processor, *_, flags, _, _, _, _, _, _ = _HEADER.unpack_from(like)
    names = [name, *_SECTION_NAMES]
    starts = [1 + sum(len(earlier) + 1 for earlier in names[:i]) for i in range(len(names))]
    strings = "\0".join(["", *names, ""]).encode()
    symbols = _SYMBOL.pack(0, 0, 0, 0, 0, 0) + _SYMBOL.pack(starts[0], _GLOBAL_OBJECT, 0, 1, 0, len(data))
    body, offsets = b"", list[int]()
    for part in (data, symbols, strings):
        body += bytes(-len(body) % 8)
        offsets.append(_HEADER.size + len(body))
        body += part
    body += bytes(-len(body) % 8)
    sections = (
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (starts[1], _DATA, 2, 0, offsets[0], len(data), 0, 0, 1, 0),
        (starts[2], _SYMBOLS, 0, 0, offsets[1], len(symbols), 3, 1, 8, _SYMBOL.size),
        (starts[3], _STRINGS, 0, 0, offsets[2], len(strings), 0, 0, 1, 0),
        (starts[4], _DATA, 0, 0, offsets[2], 0, 0, 0, 1, 0),
    )
    table = _HEADER.size + len(body)
    rest = _HEADER.size, 0, 0, _SECTION.size, len(sections), 3
    header = _HEADER.pack(identity, _RELOCATABLE, processor, _CURRENT, 0, 0, table, flags, *rest)
    return header + body + b"".join(_SECTION.pack(*section) for section in sections)


def undefined_symbols(library: bytes) -> list[str]:
    """Names that a linked library imports, except weak symbols."""
    *_, table, _, _, _, _, _, count, _ = _HEADER.unpack_from(library)
    sections = [_SECTION.unpack_from(library, table + i * _SECTION.size) for i in range(count)]
    names = list[str]()
    for _, kind, _, _, offset, size, strings, *_ in sections:
        if kind == _DYNAMIC_SYMBOLS:
            for name, info, _, section, _, _ in _SYMBOL.iter_unpack(library[offset : offset + size]):
                if name and not section and info >> 4 != _WEAK:
                    start = sections[strings][4] + name
                    names.append(library[start : library.index(0, start)].decode())
    return names


def check_symbols(names: Iterable[str]) -> None:
    """CompileError if this process has no function of one of these names. Otherwise the loader would find out when a kernel calls
    it, and end the process."""
    process = ctypes.CDLL(None)
    missing = [name for name in names if not hasattr(process, name) and name not in _UNLISTED]
    if missing:
        cause = f"its kernels call {', '.join(sorted(missing))}, which no library defines"
        raise CompileError(cause, remedy="This is a fault in Partita: please report it with the model")
