"""A profile on the page (the bars of the run, and the time of each box), and real calls: their steps, and the recorder's
observations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from partita.accelerators.runtime.profile import Profile, Row, Span
from partita.accelerators.runtime.real_runs import Timeline
from partita.accelerators.runtime.recorded import Recorded
from partita.page.boxes import Boxes
from partita.page.scene import NOWHERE, Bar, Item, Lap, Probe, Seen

MOST_BARS = 20_000
"""Maximum number of bars; beyond that only the steps of the run are shown."""


def add_times(boxes: Boxes, profile: Profile) -> list[Bar]:
    """Set the time of every box that ran; -> the bars in order."""
    items = boxes.items
    calls = {items[box].name: box for box, _ in boxes.calls}
    ops: dict[str, dict[str, int]] = defaultdict(dict)
    for i, item in enumerate(items):
        if item.kind in ("op", "call"):
            ops[_outermost(items, i)].setdefault(item.name, i)
    with_rows = len(profile.rows) <= MOST_BARS
    bars = []
    for span in profile.spans:
        home = calls.get(span.name, NOWHERE)
        bars.append(Bar(span.name, _what(span), span.device, span.start_us, span.real_us, 0, home))
        if home >= 0:
            _add_time(items, home, span.real_us)
        start = span.start_us
        for row in span.inside if with_rows and home >= 0 else ():
            box = _timed(items, ops[span.name].get(row.node, NOWHERE))
            bars.append(Bar(row.node, row.layer_type, span.device, start, row.real_us, 1, box))
            start += row.real_us
            if box >= 0:
                _add_time(items, box, row.real_us)
    return bars


def _outermost(items: Sequence[Item], box: int) -> str:
    while items[box].parent >= 0:
        box = items[box].parent
    return items[box].name


def _timed(items: Sequence[Item], box: int) -> int:
    """The kernel that contains the op, else the op."""
    return items[box].parent if box >= 0 and items[box].parent >= 0 and items[items[box].parent].kind == "kernel" else box


def _add_time(items: Sequence[Item], box: int, us: float) -> None:
    items[box].us = us + max(items[box].us, 0.0)


def _what(span: Span) -> str:
    rows: tuple[Row, ...] = span.rows
    return rows[0].exec_type if len(rows) == 1 else f"{len(rows)} rows"


_MOST_LAPS = 5000
"""Maximum number of steps of real calls that are shown, from the first."""


def laps_of(boxes: Boxes, timeline: Timeline) -> tuple[list[Lap], list[str]]:
    """The steps by start time, and a note if some are not shown."""
    home = _boxes_of_calls(boxes)
    laps = timeline.laps
    begin = laps[0].start_us if laps else 0.0
    shown = []
    for lap in laps[:_MOST_LAPS]:
        times = lap.start_us - begin, lap.us, lap.waited_us
        shown.append(Lap(lap.request, lap.name, lap.device, lap.thread, *times, home.get(lap.name, NOWHERE)))
    missing = len(laps) - len(shown) + timeline.left_out
    return shown, [f"{missing:,} more steps of the calls are not shown"] if missing else []


def seen_of(boxes: Boxes, recorded: Recorded) -> tuple[list[Seen], list[Probe]]:
    """The recorder's values, and the samples that it compared with numpy."""
    home = _boxes_of_calls(boxes)
    seen = [
        Seen(
            home.get(value.subgraph, NOWHERE), value.name, value.device, value.calls, value.nans, value.infinities,
            value.first or 0, _short(value.low), _short(value.high), "" if value.checksum is None else f"{value.checksum:08x}",
        )
        for value in recorded.values
    ]
    probes = [
        Probe(
            home.get(sample.subgraph, NOWHERE), sample.subgraph, sample.device, sample.call,
            sample.message if sample.error is None else f"{sample.error:.1e}", sample.ok,
        )
        for sample in recorded.samples
    ]
    return seen, probes


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.4g}"


def _boxes_of_calls(boxes: Boxes) -> dict[str, int]:
    return {boxes.items[box].name: box for box, _ in boxes.calls}
