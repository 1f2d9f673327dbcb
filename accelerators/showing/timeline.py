"""A run as a picture: a line for each device, a bar for each step, and below it the kernels inside."""

from __future__ import annotations

from partita.accelerators.running.profile import EXECUTED, Profile, Span
from partita.graph.words import in_xml

WIDTH, LINE, HEAD, LEFT = 900, 22, 30, 110
"""In pixels: width of the picture, height of a line of bars, height of the head, width of the devices' names."""

NARROWEST = 0.5
"""Minimum width in pixels of a drawn bar."""

LETTER = 6.0
"""Width of a letter in pixels."""


def timeline_svg(profile: Profile, width: int = WIDTH) -> str:
    """The picture of a profile as SVG. Linear."""
    from partita.graph.pictures.dot import PALETTE

    devices = list(dict.fromkeys(span.device for span in profile.spans))
    scale = (width - LEFT - 10) / (profile.total_us or 1)
    drawn = [f'<text x="4" y="19" font-weight="bold">{in_xml(profile.model[:60])}: {profile.total_us:,.0f} µs</text>']
    for i, device in enumerate(devices):
        top = HEAD + i * (2 * LINE + 8)
        drawn.append(f'<text x="4" y="{top + 15}">{in_xml(device[:16])}</text>')
        for span in profile.spans:
            if span.device == device:
                drawn += _span(span, top, scale, PALETTE[i % len(PALETTE)])
    height = HEAD + len(devices) * (2 * LINE + 8)
    style = "text{font:11px Helvetica,Arial,sans-serif;fill:#222}svg{background:white}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, f"<style>{style}</style>", *drawn, "</svg>", ""])


def _span(span: Span, top: float, scale: float, colour: str) -> list[str]:
    bars = _bar(span.name, span.start_us, span.real_us, top, scale, colour)
    start = span.start_us
    for row in span.rows:
        if row.status == EXECUTED and row.subgraph not in ("", row.node):
            bars += _bar(f"{row.layer_type} {row.node}", start, row.real_us, top + LINE, scale, colour)
            start += row.real_us
    return bars


def _bar(name: str, start_us: float, us: float, top: float, scale: float, colour: str) -> list[str]:
    wide = us * scale
    if wide < NARROWEST:
        return []
    x, says = LEFT + start_us * scale, f"{name}: {us:,.1f} µs"
    room = int((wide - 6) / LETTER)
    text = says if len(says) <= room else says[: room - 1] + "…" if room > 3 else ""
    rect = f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{LINE - 2}" rx="3" fill="{colour}" stroke="white"/>'
    label = f'<text x="{x + 4:.1f}" y="{top + 14}">{in_xml(text)}</text>' if text else ""
    return [f"<g><title>{in_xml(says)}</title>{rect}{label}</g>"]
