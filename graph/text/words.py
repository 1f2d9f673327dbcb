"""Spelling of names, strings and bytes in the text form."""

from __future__ import annotations

import re

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_LONG = {short: char for char, short in _SHORT.items()}
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-f]{1,6})\}|x([0-9a-f]{2})|.)", re.DOTALL)


def word(text: str) -> str:
    """A name: bare if it is a plain word, else quoted. A lone underscore means an absent value."""
    return text if _BARE.fullmatch(text) and text != "_" else quoted(text)


def quoted(text: str) -> str:
    """A string in double quotes, with unprintable characters escaped."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join([_SHORT.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text]) + '"'


def quoted_bytes(data: bytes) -> str:
    """Bytes as b"...", with anything but printable ASCII escaped."""
    text = data.decode("latin1")
    return 'b"' + "".join([_SHORT.get(c) or (c if " " <= c <= "~" else f"\\x{ord(c):02x}") for c in text]) + '"'


def unquoted(token: str) -> str:
    """The inverse of `quoted`; ValueError for an unknown escape."""
    body = token[1:-1]
    return _ESCAPE.sub(_character, body) if "\\" in body else body


def unquoted_bytes(token: str) -> bytes:
    """The inverse of `quoted_bytes`."""
    try:
        return unquoted(token[1:]).encode("latin1")
    except UnicodeEncodeError:
        raise ValueError("a character that is not a byte (write \\x and two hexadecimal digits)") from None


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    if code:
        if int(code, 16) > 0x10FFFF:
            raise ValueError(f"the escape {match[0]}, which is not a character")
        return chr(int(code, 16))
    if match[0] not in _LONG:
        raise ValueError(f"the escape {match[0]}, which does not exist")
    return _LONG[match[0]]
