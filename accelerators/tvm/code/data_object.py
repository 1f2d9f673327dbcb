"""Bytes as an object file, from which a linker puts them into a library under a name.

LLVM makes such files too, and takes as long for one as for a small kernel. This is the file of ELF's format that it would write:
a header, a section of read-only data, and one symbol at its beginning."""

from __future__ import annotations

import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_RELOCATABLE, _CURRENT = 1, 1
"""The type and the version of a file that is to be linked."""

_DATA, _SYMBOLS, _STRINGS = 1, 2, 3
"""The types of sections."""

_GLOBAL_OBJECT = 1 << 4 | 1
"""A symbol for data that other files see."""

_SECTION_NAMES = (".rodata", ".symtab", ".strtab", ".note.GNU-stack")
"""The last one, which is empty, says that nobody runs code on the stack."""


def takes_data(code: bytes) -> bool:
    """Is the object file of the kind that `data_object` writes: ELF's, of 64 bits, the low byte of a number first?"""
    return code.startswith(b"\x7fELF\x02\x01")


def data_object(name: str, data: bytes, like: bytes) -> bytes:
    """An object file that holds the data under this name, for the processor that another object file is for."""
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
