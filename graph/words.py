"""Small pieces of the sentences that people read: counts and lists in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""The characters that XML cannot hold, not even as an escape."""


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 op`, `2 ops`; 1,000 and more with commas."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


def shortened(text: str, most: int = 240) -> str:
    """The text, or its two ends where it is so long that nobody reads it: names come from models."""
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"


MOST = 100_000
"""The letters of a value's text that are handed on."""


def in_words(value: object) -> str:
    """The value's own words, up to MOST letters; an error or a value of a plugin's may have none."""
    try:
        words = str(value)
    except Exception as error:  # noqa: BLE001  whatever a plugin's class raises
        return f"(its message cannot be read: {type(error).__name__})"
    return words if len(words) <= MOST else f"{words[:MOST]}..."


def in_code(value: object, most: int = 60) -> str:
    """The value as code writes it, up to so many letters; a plugin's may not let itself be written."""
    try:
        return f"{value!r:.{most}}"
    except Exception:  # noqa: BLE001  whatever a plugin's class raises
        return f"a {type(value).__name__} that cannot be written"


def error_in_words(error: BaseException) -> str:
    """The kind of an error and its message."""
    return f"{type(error).__name__}: {in_words(error)}"


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or the name of its kind where it says nothing."""
    return next(iter(in_words(error).splitlines()), "") or type(error).__name__


def in_xml(text: str) -> str:
    """The text for an SVG: marks are escaped, and what no XML can hold is the sign for an unknown character."""
    return escape(NO_XML.sub("\ufffd", text))


def first_of(lines: Sequence[str], most: int = 12) -> list[str]:
    """The lines, or the first of them and how many more there are."""
    more = len(lines) - most
    return list(lines) if more <= 0 else [*lines[:most], f"... and {counted(more, 'more note', 'more notes')}"]
