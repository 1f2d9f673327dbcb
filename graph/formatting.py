"""Text fragments for messages: counts and lists in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""The characters that XML cannot represent, not even as an escape."""


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 op`, `2 ops`; 1,000 and more with commas."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


def shortened(text: str, most: int = 240) -> str:
    """The text, or both its ends if it is too long, as names in models may be."""
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"


def truncated(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis if it has more characters than that."""
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(names: Sequence[str], most: int) -> str:
    """At most `most` of the names: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


MOST = 100_000
"""Maximum number of characters of a value's text."""


def in_words(value: object) -> str:
    """`str(value)`, truncated to MOST characters; never raises, even if a plugin's class does."""
    try:
        words = str(value)
    except Exception as error:  # noqa: BLE001  whatever a plugin's class raises
        return f"(its message cannot be read: {type(error).__name__})"
    return words if len(words) <= MOST else f"{words[:MOST]}..."


def in_code(value: object, most: int = 60) -> str:
    """`repr(value)`, truncated; never raises, even if a plugin's class does."""
    try:
        return f"{value!r:.{most}}"
    except Exception:  # noqa: BLE001  whatever a plugin's class raises
        return f"a {type(value).__name__} that cannot be written"


def error_in_words(error: BaseException) -> str:
    """The type of an error and its message."""
    return f"{type(error).__name__}: {in_words(error)}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type if it has none."""
    return next(iter(in_words(error).splitlines()), "") or type(error).__name__


def in_xml(text: str) -> str:
    """The text for an SVG: markup is escaped, and characters that XML cannot represent are replaced."""
    return escape(NO_XML.sub("\ufffd", text))


MOST_LINES = 12
"""The most lines that are shown of many."""


def first_of(lines: Sequence[str]) -> list[str]:
    """The lines, or the first of them and the number of others."""
    more = len(lines) - MOST_LINES
    return list(lines) if more <= 0 else [*lines[:MOST_LINES], f"... and {counted(more, 'more note', 'more notes')}"]
