"""Borders and refusals, with boxes of the page instead of names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from partita.accelerators.placement.placement import Placement
from partita.page.scene import Refusal, Wall
from partita.partition import PartitionReport

MOST_WAYS = 20
"""Maximum number of borders whose cycle is searched; each search is linear."""


def walls(report: PartitionReport, by_name: Mapping[str, int]) -> list[Wall]:
    """The borders whose two ends are drawn.

    Borders of graph inputs are left out, because they are obvious.
    """
    calls = dict(zip([group.name for group in report.groups], report.calls, strict=True))
    borders = []
    ways = MOST_WAYS
    for border in report.borders:
        if border.rule == "input" or border.producer not in by_name or border.consumer not in by_name:
            continue
        text = border.text
        if border.rule == "cycle" and ways:
            ways -= 1
            way = report.cycle_path(border)
            text += f" (the way: {' → '.join(way)})" if way else ""
        ends = by_name[border.producer], by_name[border.consumer]
        borders.append(Wall(*ends, calls.get(border.inside, border.inside), border.rule, text))
    return borders


def outside(report: PartitionReport, by_name: Mapping[str, int]) -> list[Refusal]:
    """Reasons why ops are in no subgraph, with the ops of each."""
    rows = ((o.node, "in no subgraph", o.rule, o.text.replace(repr(o.node), "the op")) for o in report.outside)
    return _grouped(rows, by_name)


def refused(placement: Placement, by_name: Mapping[str, int]) -> list[Refusal]:
    """Reasons why the preferred devices do not run ops, with the ops of each; for ops that no device runs, the reasons of all."""
    return refused_in({name: placement.refusals(name) for name in (*placement, *placement.unsupported)}, by_name)


def refused_in(refusals: Mapping[str, Mapping[str, str]], by_name: Mapping[str, int]) -> list[Refusal]:
    """The same from a report that was saved to a file."""
    rows = (
        (name, f"not on {device}", "", reason.replace(repr(name), "the op"))
        for name, reasons in refusals.items()
        for device, reason in reasons.items()
    )
    return _grouped(rows, by_name)


def _grouped(rows: Iterator[tuple[str, str, str, str]], by_name: Mapping[str, int]) -> list[Refusal]:
    members: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for name, *reason in rows:
        if name in by_name:
            what, rule, text = reason
            members[what, rule, text].append(by_name[name])
    refusals = [Refusal(*reason, tuple(items)) for reason, items in members.items()]
    return sorted(refusals, key=lambda refusal: -len(refusal.items))
