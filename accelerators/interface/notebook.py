"""The pictures of costs and of a profile, and the HTML representations of a placement, a compile report, a profile and a
compiled model for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from partita.graph.formatting import counted, in_xml
from partita.graph.pictures.dot import PALETTE
from partita.graph.pictures.html import lines, picture, table
from partita.graph.pictures.svg import notebook_svg

if TYPE_CHECKING:
    from partita.accelerators.building.report import CompileReport
    from partita.accelerators.placement.costs import Costs
    from partita.accelerators.placement.placement import Placement
    from partita.accelerators.runtime.compiled_model import CompiledModel
    from partita.accelerators.runtime.profile import Profile, Span

SLOWEST = 15
"""Maximum number of rows listed of a profile."""


def placement_html(placement: Placement) -> str:
    """Ops by device, reasons, and the graph in the devices' colours."""
    graph = placement.graph
    svg = notebook_svg(graph, lambda node: placement.get(node.name) if node.is_op else None)
    return _placement_tables(placement) + ("" if svg is None else picture(svg, f"{graph.name}, coloured by device"))


def _placement_tables(placement: Placement) -> str:
    ops: dict[str, Counter[str]] = {device: Counter() for device in placement.devices}
    reasons: Counter[tuple[str, str]] = Counter()
    for name, device in placement.items():
        ops[device][placement.graph[name].op or ""] += 1
        reasons.update(placement.refusals(name).items())
    rows = [
        (device, count.total(), ", ".join(f"{op} ×{n}" for op, n in count.most_common(6)) + (", …" if len(count) > 6 else ""))
        for device, count in ops.items()
    ]
    shown = table(("device", "ops", "which"), rows, title=f"{placement.graph.name}: {counted(placement.ops, 'op')}")
    if reasons:
        why = [(device, count, reason) for (device, reason), count in reasons.most_common()]
        shown += table(("not on", "ops", "because"), why, most=12)
    return shown


def report_html(report: CompileReport, moves: Sequence[str]) -> str:
    """The subgraphs, the placement, moves and notes."""
    rows = [(row.name, row.device, row.ops, f"{row.seconds:.2f} s") for row in report.subgraphs]
    title = str(report).partition("\n")[0]
    shown = table(("subgraph", "device", "ops", "compiled in"), rows, title=title)
    return shown + _placement_tables(report.placement) + lines([*moves, *report.notes])


def profile_html(profile: Profile) -> str:
    """The timeline, and the slowest rows."""
    slowest = sorted(profile.rows, key=lambda row: -row.real_us)
    rows = [(row.node, row.layer_type, row.subgraph, row.device, row.real_us) for row in slowest]
    svg = timeline_svg(profile)
    header = ("node", "layer type", "subgraph", "device", "µs")
    title = f"the slowest of {len(rows):,}, on {profile.inputs}"
    return picture(svg, f"timeline of {profile.model}") + table(header, rows, title=title, most=SLOWEST)


def model_html(model: CompiledModel) -> str:
    """The model's properties, its subgraphs, and its graph in the colours of the devices."""
    properties = model.properties
    rows = [
        ("devices", ", ".join(properties.devices)),
        *(("input", name if kind is None else f"{name}: {kind}") for name, kind in properties.inputs),
        *(("output", name if kind is None else f"{name}: {kind}") for name, kind in properties.outputs),
    ]
    calls = [(unit.name, unit.device.label, len(unit.ops)) for unit in model.units]
    svg = notebook_svg(model.graph)
    shown = table((), rows, title=f"{properties.name}, compiled") + table(("subgraph", "device", "ops"), calls, most=20)
    return shown + ("" if svg is None else picture(svg, f"{properties.name}, coloured by device"))


_WIDTH, _LINE, _HEAD, _LEFT = 900, 22, 30, 110
"""In pixels: width of the picture, height of a line of bars, height of the head, width of the devices' names."""

_NARROWEST = 0.5
"""Minimum width in pixels of a drawn bar."""

_LETTER = 6.0
"""Width of a letter in pixels."""


def timeline_svg(profile: Profile, width: int = _WIDTH) -> str:
    """The picture of a profile as SVG: a line for each device, a bar for each step, and below it the kernels inside. Linear."""
    devices = list(dict.fromkeys(span.device for span in profile.spans))
    scale = (width - _LEFT - 10) / (profile.total_us or 1)
    drawn = [f'<text x="4" y="19" font-weight="bold">{in_xml(profile.model[:60])}: {profile.total_us:,.0f} µs</text>']
    for i, device in enumerate(devices):
        top = _HEAD + i * (2 * _LINE + 8)
        drawn.append(f'<text x="4" y="{top + 15}">{in_xml(device[:16])}</text>')
        for span in profile.spans:
            if span.device == device:
                drawn += _span(span, top, scale, PALETTE[i % len(PALETTE)])
    return _svg(drawn, width, _HEAD + len(devices) * (2 * _LINE + 8))


def _svg(drawn: Sequence[str], width: int, height: int) -> str:
    style = "text{font:11px Helvetica,Arial,sans-serif;fill:#222}svg{background:white}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, f"<style>{style}</style>", *drawn, "</svg>", ""])


HANDED_OVER = 1 << 20
"""The bytes of the hand-overs in a picture of costs."""


def costs_svg(costs: Costs, width: int = _WIDTH) -> str:
    """The picture of costs as SVG: for each device a line with a bar for each op, and for each hand-over one with its launch and
    its bytes. Linear."""
    ops = {device: list(times.items()) for device, times in costs.times.items()}
    overs = {
        f"{a} to {b}": [("launch", one.launch_us), ("1 MiB", one.us(HANDED_OVER) - one.launch_us)]
        for (a, b), one in costs.hand_overs.items()
    }
    drawn, top = [f'<text x="4" y="19" font-weight="bold">{in_xml(f"costs ({costs.source})"[:140])}</text>'], _HEAD
    for title, lines_of in (("all ops", ops), ("a hand-over of 1 MiB", overs)):
        longest = max((sum(us for _, us in bars) for bars in lines_of.values()), default=0.0)
        if longest:
            drawn.append(f'<text x="4" y="{top + 14}" font-weight="bold">{title}</text>')
            top += _LINE
        for i, (label, bars) in enumerate(lines_of.items() if longest else ()):
            total, start = sum(us for _, us in bars), 0.0
            drawn.append(f'<text x="4" y="{top + 14}">{in_xml(f"{label[:28]}: {total:,.1f} {costs.unit}")}</text>')
            for name, us in bars:
                scale = (width - 2 * _LEFT - 10) / longest
                drawn += _bar(name, start, us, top, scale, PALETTE[i % len(PALETTE)], 2 * _LEFT, costs.unit)
                start += us
            top += _LINE
    return _svg(drawn, width, top + 8)


def _span(span: Span, top: float, scale: float, colour: str) -> list[str]:
    bars = _bar(span.name, span.start_us, span.real_us, top, scale, colour)
    start = span.start_us
    for row in span.inside:
        bars += _bar(f"{row.layer_type} {row.node}", start, row.real_us, top + _LINE, scale, colour)
        start += row.real_us
    return bars


def _bar(
    name: str, start_us: float, us: float, top: float, scale: float, colour: str, left: float = _LEFT, unit: str = "µs"
) -> list[str]:
    wide = us * scale
    if wide < _NARROWEST:
        return []
    x, says = left + start_us * scale, f"{name}: {us:,.1f} {unit}"
    room = int((wide - 6) / _LETTER)
    text = says if len(says) <= room else says[: room - 1] + "…" if room > 3 else ""
    rect = f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{_LINE - 2}" rx="3" fill="{colour}" stroke="white"/>'
    label = f'<text x="{x + 4:.1f}" y="{top + 14}">{in_xml(text)}</text>' if text else ""
    return [f"<g><title>{in_xml(says)}</title>{rect}{label}</g>"]
