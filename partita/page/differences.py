"""Changes since an earlier report: moved ops, regrouped subgraphs, times, counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import attrs

from partita.graph.formatting import counted, listed
from partita.page.scene import NOWHERE, Change, Scene

MOVED, CUT, NEW, GONE, TIME = "moved", "regrouped", "new", "gone", "time"
"""Kinds of changes, in display order."""

LEAST_SHARE, LEAST_OF_RUN = 0.1, 0.01
"""A time counts as changed if it differs by this share of itself, and by this share of the run."""

MOST_NAMED = 4
"""Maximum number of subgraphs that a text names."""

NONE = "no device or subgraph"
"""Location of an op outside any device and subgraph."""

Members = frozenset[str]


@attrs.frozen(slots=True)
class _Grouping:
    """The ops of a report, by name."""

    op: Mapping[str, int]
    """Box of each op."""
    home: Mapping[str, int]
    """Box of the subgraph that contains each op; -1 if none."""
    members: Mapping[int, Members]
    """Ops in each box that contains some."""


def compared(before: Scene, now: Scene) -> Scene:
    """The current scene with the changes since. Linear, except for sorting."""
    old, new = _cut(before), _cut(now)
    changes = [*_moved(before, now, old, new), *_regrouped(before, now, old, new)]
    changes += [Change(new.op[name], NEW, name, now.items[new.op[name]].label) for name in new.op if name not in old.op]
    changes += [Change(NOWHERE, GONE, name, before.items[old.op[name]].label) for name in old.op if name not in new.op]
    changes += _times(before, now, old, new)
    title = f"{before.title}, {before.subtitle}"
    return attrs.evolve(now, before=title, changes=changes, compared=tuple(_counts(before, now)))


def _cut(scene: Scene) -> _Grouping:
    op: dict[str, int] = {}
    home: dict[str, int] = {}
    members: dict[int, set[str]] = defaultdict(set)
    for i, item in enumerate(scene.items):
        if item.kind != "op" or item.name in op:
            continue
        op[item.name], home[item.name] = i, NOWHERE
        box = item.parent
        while box >= 0:
            members[box].add(item.name)
            if home[item.name] < 0 and scene.items[box].kind == "call":
                home[item.name] = box
            box = scene.items[box].parent
    return _Grouping(op, home, {box: frozenset(names) for box, names in members.items()})


def _moved(before: Scene, now: Scene, old: _Grouping, new: _Grouping) -> list[Change]:
    changes = []
    for name, box in new.op.items():
        if name in old.op:
            was, is_now = before.items[old.op[name]].owner, now.items[box].owner
            if was != is_now:
                changes.append(Change(box, MOVED, name, f"{was or NONE} → {is_now or NONE}"))
    return changes


def _regrouped(before: Scene, now: Scene, old: _Grouping, new: _Grouping) -> list[Change]:
    """Changes of subgraphs with other ops than any before."""
    known = {names for box, names in old.members.items() if before.items[box].kind == "call"}
    changes = []
    for box, names in new.members.items():
        if now.items[box].kind != "call" or names in known:
            continue
        origins = Counter(old.home[name] for name in names if name in old.home)
        largest = sorted(origins.items(), key=lambda origin: (-origin[1], origin[0] < 0, origin[0]))
        parts = [f"{count} of {before.items[home].name if home >= 0 else 'no subgraph'}" for home, count in largest]
        added = len(names) - origins.total()
        parts += [f"{added} new"] if added else []
        shown = listed(parts, MOST_NAMED)
        changes.append(Change(box, CUT, now.items[box].name, f"{counted(len(names), 'op')}: {shown}"))
    return changes


def _times(before: Scene, now: Scene, old: _Grouping, new: _Grouping) -> list[Change]:
    """Changes of times of boxes with the same ops, the largest first."""
    was = {_same(before, old, box): item.us for box, item in enumerate(before.items) if item.us >= 0}
    least = LEAST_OF_RUN * max(before.total_us, now.total_us)
    rows: list[tuple[float, Change]] = []
    for box, item in enumerate(now.items):
        us = was.get(_same(now, new, box)) if item.us >= 0 and item.kind != "section" else None
        if us is not None and abs(item.us - us) >= max(least, LEAST_SHARE * us):
            text = f"{time_text(us)} → {time_text(item.us)}"
            rows.append((-abs(item.us - us), Change(box, TIME, item.label if item.kind == "kernel" else item.name, text)))
    return [change for _, change in sorted(rows, key=lambda row: row[0])]


def _same(scene: Scene, cut: _Grouping, box: int) -> tuple[str, object]:
    """Key that identifies a box in two reports."""
    item = scene.items[box]
    return item.kind, cut.members.get(box) or item.name


def _counts(before: Scene, now: Scene) -> list[tuple[str, str, str]]:
    rows = [(what, f"{_count(before, what):,}", f"{_count(now, what):,}") for what in ("ops", "subgraphs", "borders", "refusals")]
    for what, values in (("values in transfers", "values"), ("bytes in transfers", "nbytes")):
        sums = [sum(getattr(row, values) for row in scene.transfers) for scene in (before, now)]
        rows.append((what, f"{sums[0]:,}", f"{sums[1]:,}"))
    if before.run and now.run:
        rows.append(("run", time_text(before.total_us), time_text(now.total_us)))
    return rows


def _count(scene: Scene, what: str) -> int:
    counts: Mapping[str, Sequence[object]] = {
        "ops": [item for item in scene.items if item.kind == "op"],
        "subgraphs": scene.subgraphs,
        "borders": scene.walls,
        "refusals": [item for refusal in scene.refusals for item in refusal.items],
    }
    return len(counts[what])


def time_text(us: float) -> str:
    """A time in readable units."""
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    return f"{us / 1e3:.2f} ms" if us >= 1e3 else f"{us:.1f} µs"
