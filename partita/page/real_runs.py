"""Real calls on the page: their steps, and the recorder's observations."""

from __future__ import annotations

from partita.accelerators.running.real_runs import Timeline
from partita.accelerators.running.recorded import Recorded
from partita.page.boxes import Boxes
from partita.page.scene import NOWHERE, Lap, Probe, Seen

MOST_LAPS = 5000
"""Maximum number of steps of real calls that are shown, from the first."""


def laps_of(boxes: Boxes, timeline: Timeline) -> tuple[list[Lap], list[str]]:
    """The steps by start time, and a note if some are not shown."""
    home = _boxes_of_calls(boxes)
    laps = timeline.laps
    begin = laps[0].start_us if laps else 0.0
    shown = []
    for lap in laps[:MOST_LAPS]:
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
