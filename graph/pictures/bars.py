"""Pictures of times as bars in lines, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.formatting import in_xml

WIDTH, LINE, HEAD, LEFT = 900, 22, 30, 110
"""In pixels: width of the picture, height of a line of bars, height of the head, width of the devices' names."""

NARROWEST = 0.5
"""Minimum width in pixels of a drawn bar."""

LETTER = 6.0
"""Width of a letter in pixels."""


def svg_of(drawn: Sequence[str], width: int, height: int) -> str:
    """The picture of what was drawn."""
    style = "text{font:11px Helvetica,Arial,sans-serif;fill:#222}svg{background:white}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, f"<style>{style}</style>", *drawn, "</svg>", ""])


def bar(
    name: str, start_us: float, us: float, top: float, scale: float, colour: str, left: float = LEFT, unit: str = "µs"
) -> list[str]:
    """A bar with its name; nothing if it is too narrow."""
    wide = us * scale
    if wide < NARROWEST:
        return []
    x, says = left + start_us * scale, f"{name}: {us:,.1f} {unit}"
    room = int((wide - 6) / LETTER)
    text = says if len(says) <= room else says[: room - 1] + "…" if room > 3 else ""
    rect = f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{LINE - 2}" rx="3" fill="{colour}" stroke="white"/>'
    label = f'<text x="{x + 4:.1f}" y="{top + 14}">{in_xml(text)}</text>' if text else ""
    return [f"<g><title>{in_xml(says)}</title>{rect}{label}</g>"]
