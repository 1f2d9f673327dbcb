"""Values that go from one device or property to another: their number and bytes."""

from __future__ import annotations

from collections import defaultdict

from partita.page.boxes import Boxes
from partita.page.scene import Transfer

OUTSIDE = "outside"
"""Owner of ops that are on no device and in no subgraph."""


def transfers(boxes: Boxes) -> list[Transfer]:
    """For each pair of devices or properties, the values that one computes and the other reads; a value that is read twice counts
    once.
    """
    items, values = boxes.items, boxes.values
    crossing: dict[tuple[str, str], set[int]] = defaultdict(set)
    for value, reader in boxes.edges:
        source = items[values[value].source]
        target = items[reader]
        if "input" in (source.kind, target.kind) or "output" in (source.kind, target.kind):
            continue
        if source.owner != target.owner:
            crossing[source.owner or OUTSIDE, target.owner or OUTSIDE].add(value)
    rows = []
    for (source_owner, target_owner), crossed in crossing.items():
        sizes = [values[value].nbytes for value in crossed]
        known = [size for size in sizes if size >= 0]
        rows.append(Transfer(source_owner, target_owner, len(sizes), sum(known), len(sizes) - len(known)))
    return sorted(rows, key=lambda row: (-row.nbytes, row.source, row.target))
