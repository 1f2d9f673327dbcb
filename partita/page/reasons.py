"""Borders and refusals, told of boxes instead of names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from accelerators.placement import Placement
from partita.page.scene import Refusal, Wall
from partition import PartitionReport


def walls(report: PartitionReport, by_name: Mapping[str, int]) -> list[Wall]:
    """The borders whose two ends are drawn. Those of graph inputs say nothing that is not seen."""
    calls = dict(zip([group.name for group in report.groups], report.calls, strict=True))
    return [
        Wall(by_name[b.producer], by_name[b.consumer], calls.get(b.inside, b.inside), b.rule, b.text)
        for b in report.borders
        if b.rule != "input" and b.producer in by_name and b.consumer in by_name
    ]


def outside(report: PartitionReport, by_name: Mapping[str, int]) -> list[Refusal]:
    """Why ops are in no subgraph, by reason."""
    rows = ((o.node, "in no subgraph", o.rule, o.text.replace(repr(o.node), "the op")) for o in report.outside)
    return _grouped(rows, by_name)


def refused(placement: Placement, by_name: Mapping[str, int]) -> list[Refusal]:
    """Why the preferred devices do not run ops, by reason."""
    rows = (
        (name, f"not on {device}", "", reason.replace(repr(name), "the op"))
        for name in placement
        for device, reason in placement.refusals(name).items()
    )
    return _grouped(rows, by_name)


def refused_in(refusals: Mapping[str, Mapping[str, str]], by_name: Mapping[str, int]) -> list[Refusal]:
    """The same from a report that was written to a file."""
    rows = (
        (name, f"not on {device}", "", reason.replace(repr(name), "the op"))
        for name, reasons in refusals.items()
        for device, reason in reasons.items()
    )
    return _grouped(rows, by_name)


def _grouped(rows: Iterator[tuple[str, str, str, str]], by_name: Mapping[str, int]) -> list[Refusal]:
    found: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for name, *reason in rows:
        if name in by_name:
            what, rule, text = reason
            found[what, rule, text].append(by_name[name])
    made = [Refusal(*reason, tuple(items)) for reason, items in found.items()]
    return sorted(made, key=lambda refusal: -len(refusal.items))
