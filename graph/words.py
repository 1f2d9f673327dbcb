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


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or the name of its kind where it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def in_xml(text: str) -> str:
    """The text for an SVG: marks are escaped, and what no XML can hold is the sign for an unknown character."""
    return escape(NO_XML.sub("\ufffd", text))


def first_of(lines: Sequence[str], most: int = 12) -> list[str]:
    """The lines, or the first of them and how many more there are."""
    more = len(lines) - most
    return list(lines) if more <= 0 else [*lines[:most], f"... and {counted(more, 'more note', 'more notes')}"]
