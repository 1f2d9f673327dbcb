"""Picture of the errors of a model's layers: bars with the logarithms of their relative errors."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from partita.by_layer import Layer
from partita.graph.words import in_xml, shortened

ROW, LABEL, WIDTH = 18, 260, 420
"""Height of a row, width of the names, and width of the bars, in pixels."""

LEAST, LARGEST = -9.0, 1.0
"""Decimal logarithms of the errors at the left and right end."""


def error_plot(layers: Sequence[Layer], blamed: Collection[str] = ()) -> str:
    """The picture as SVG. Bars of blamed values are red, those of infinite errors reach the end."""
    height = ROW * (len(layers) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 90}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
    ]
    for power in range(int(LEAST), int(LARGEST) + 1, 2):
        x = LABEL + _length(10.0**power)
        parts.append(f'<line x1="{x:.0f}" y1="{ROW}" x2="{x:.0f}" y2="{height - ROW}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{ROW - 5}" text-anchor="middle" fill="#555">1e{power}</text>')
    for i, layer in enumerate(layers):
        parts += _row(layer, ROW * (i + 1), layer.name in blamed)
    return "\n".join([*parts, "</svg>"])


def _row(layer: Layer, top: int, blamed: bool) -> list[str]:
    color = "#c62828" if blamed else "#5c6bc0"
    name, length = in_xml(shortened(layer.name, 40)), _length(layer.relative)
    number = f"{layer.relative:.1e}" if math.isfinite(layer.relative) else "infinite"
    return [
        f'<text x="{LABEL - 6}" y="{top + 13}" text-anchor="end">{name}</text>',
        f'<rect x="{LABEL}" y="{top + 3}" width="{length:.1f}" height="{ROW - 6}" fill="{color}">'
        f"<title>{in_xml(layer.name)} ({in_xml(layer.op)}): {number}</title></rect>",
        f'<text x="{LABEL + length + 5:.1f}" y="{top + 13}" fill="#555">{number}</text>',
    ]


def _length(error: float) -> float:
    if error <= 0:
        return 0.0
    power = LARGEST if math.isinf(error) else min(max(math.log10(error), LEAST), LARGEST)
    return WIDTH * (power - LEAST) / (LARGEST - LEAST)
