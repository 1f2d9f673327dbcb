"""Tables and pictures as HTML for a notebook: escaped, truncated, and with local styles only."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

from partita.graph.formatting import truncated

LONGEST = 200
"""Longer texts in a cell are truncated."""

LARGEST_PICTURE = 400_000
"""Maximum size of a picture in bytes: notebooks save what they display."""

LONGEST_TEXT = 20_000
"""Longer plain texts are replaced by a short one."""

CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
"""CSS of a cell."""


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", most: int = 30) -> str:
    """A table of texts; rows beyond `most` are only counted."""
    rows = list(rows)
    lines = [f'<tr>{"".join(_cell("th", name) for name in header)}</tr>'] if header else []
    lines += [f"<tr>{''.join(_cell('td', value) for value in row)}</tr>" for row in islice(rows, most)]
    if len(rows) > most:
        lines.append(f'<tr><td colspan="{len(header) or 1}" style="{CELL}">… {len(rows) - most:,} more</td></tr>')
    caption = f'<caption style="{CELL};font-weight:bold">{escape(cut(title))}</caption>' if title else ""
    return f'<table style="margin:6px 0">{caption}{"".join(lines)}</table>'


def picture(svg: str, says: str) -> str:
    """A drawing as an image, so that none of its styles reach the notebook; empty if it is too large."""
    data = svg.encode()
    if len(data) > LARGEST_PICTURE:
        return ""
    source = f"data:image/svg+xml;base64,{b64encode(data).decode()}"
    return (
        '<div style="max-height:600px;overflow:auto;background:white">'
        f'<img alt="{escape(cut(says))}" src="{source}" style="max-width:none"></div>'
    )


def lines(texts: Iterable[str], most: int = 10) -> str:
    """Notes, one per line."""
    texts = list(texts)
    shown = [escape(cut(text)) for text in texts[:most]] + ([f"… {len(texts) - most} more"] if len(texts) > most else [])
    return f"<p>{'<br>'.join(shown)}</p>" if shown else ""


def cut(text: str) -> str:
    """The text, truncated if it is too long."""
    return truncated(text, LONGEST)


def _cell(tag: str, value: object) -> str:
    aligned = CELL.replace("left", "right") if isinstance(value, (int, float)) else CELL
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if isinstance(value, float) else cut(str(value))
    return f'<{tag} style="{aligned}">{escape(text)}</{tag}>'


def bundle(shown: object, html: str) -> dict[str, str]:
    """The result of `_repr_mimebundle_`: HTML, and plain text as a fallback."""
    text = str(shown)
    return {"text/plain": text if len(text) <= LONGEST_TEXT else repr(shown), "text/html": html}
