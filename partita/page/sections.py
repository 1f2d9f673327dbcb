"""Long lists of boxes cut into sections, so that no more than a screenful is laid out at once.

A section is a stretch of a topological order, so sections close no cycles. It ends where few values cross."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from partita.graph.formatting import counted
from partita.graph.order import lowest_first
from partita.page.boxes import Boxes
from partita.page.scene import NOWHERE, Item

MOST = 240
"""Maximum number of boxes in one; more are cut into sections."""

SHORTEST, LONGEST = 24, 60
"""Range of the number of boxes of a section."""

SCREENFUL = 60
"""Maximum number of boxes shown initially, whose text can be read at once."""

FEW = 6
"""Fewer boxes than this are not informative: then their contents are shown too, however many there are."""


def add_sections(boxes: Boxes) -> None:
    """Cut every box with too many items into sections, then these sections, until none has too many. O(n log n)."""
    items = boxes.items
    inside = children(items)
    scopes = _scopes(items)
    waiting = list(inside)
    while waiting:
        parent = waiting.pop()
        members = inside[parent]
        if len(members) <= MOST:
            continue
        position = positions(items, parent, members)
        edges = [(position[boxes.values[v].source], position[box]) for v, box in boxes.edges]
        order = _topological(len(members), edges)
        members = [members[i] for i in order]
        rank = {old: new for new, old in enumerate(order)}
        edges = [(rank[u], rank[v]) for u, v in edges if u >= 0 and v >= 0]
        sections = []
        for start, stop in _stretches(len(members), edges):
            section = members[start:stop]
            contents = counted(len(section), "box", "boxes")
            name, owner = _name(scopes, section, start), _owner(items, section)
            items.append(Item("section", name, contents, parent, owner, us=_time(items, section)))
            sections.append(len(items) - 1)
            for box in section:
                items[box].parent = sections[-1]
            scopes.append(scopes[section[0]])
        inside[parent] = sections
        waiting.append(parent)


def children(items: Sequence[Item]) -> dict[int, list[int]]:
    """Boxes in each box, in order."""
    inside: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        inside.setdefault(item.parent, []).append(i)
    return inside


def positions(items: Sequence[Item], parent: int, members: Sequence[int]) -> list[int]:
    """The position among these members of the one that contains each item; -1 if none does."""
    result: list[int | None] = [None] * len(items)
    outside = NOWHERE
    for position, box in enumerate(members):
        result[box] = position
    for start in range(len(items)):
        chain = []
        at = start
        while at >= 0 and at != parent and result[at] is None:
            chain.append(at)
            at = items[at].parent
        known = result[at] if at >= 0 and at != parent else None
        for box in chain:
            result[box] = outside if known is None else known
    return [outside if position is None else position for position in result]


def _topological(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The numbers below `count` in topological order, the lowest ready one first.

    Numbers on a cycle, which there should not be, come last."""
    readers: list[set[int]] = [set() for _ in range(count)]
    for u, v in edges:
        if u >= 0 and v >= 0 and u != v:
            readers[u].add(v)
    waiting = [0] * count
    for v in (v for after in readers for v in after):
        waiting[v] += 1
    done = lowest_first([v for v in range(count) if not waiting[v]], waiting, readers)
    return [*done, *sorted(set(range(count)).difference(done))]


def _stretches(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Cut 0..count where the fewest edges cross, with stretches as long as possible and of at least the minimum length."""
    change = [0] * (count + 1)
    for u, v in edges:
        if u < v:
            change[u + 1] += 1
            change[v + 1] -= 1
    crossing = list(accumulate(change))  # crossing[i]: number of edges from before i to i or later
    stretches = []
    start = 0
    while count - start > LONGEST:
        last = min(start + LONGEST, count - SHORTEST)
        stop = min(range(start + SHORTEST, last + 1), key=lambda i: (crossing[i], -i))
        stretches.append((start, stop))
        start = stop
    return [*stretches, (start, count)]


def _name(scopes: Sequence[str], section: Sequence[int], start: int) -> str:
    """Scopes of the first and of the last op in it, if names have scopes; else the range of its boxes' numbers."""
    shown = [scopes[box] for box in section if scopes[box]]
    if not shown:
        return f"{start + 1}–{start + len(section)}"
    return shown[0] if shown[0] == shown[-1] else f"{shown[0]} … {shown[-1]}"


def _scopes(items: Sequence[Item]) -> list[str]:
    """The scope of each box's first op: its name up to the last slash or dot."""
    names = [""] * len(items)
    for i, item in enumerate(items):
        if item.kind == "op":
            scope = item.name[: max(item.name.rfind("/"), item.name.rfind("."), 0)].strip("/.")
            while i >= 0 and not names[i]:
                names[i] = scope
                i = items[i].parent
    return names


def _owner(items: Sequence[Item], section: Sequence[int]) -> str:
    owners = {items[box].owner for box in section if items[box].kind not in ("input", "output")}
    return owners.pop() if len(owners) == 1 else ""


def _time(items: Sequence[Item], section: Sequence[int]) -> float:
    """Total time of its boxes that ran; -1 if none did."""
    taken = [items[box].us for box in section if items[box].us >= 0]
    return sum(taken) if taken else NOWHERE


def open_some(items: Sequence[Item]) -> None:
    """Mark the boxes that the page shows open initially: level by level from the outermost, while a whole level fits."""
    inside = children(items)
    level = inside.get(NOWHERE, [])
    shown = len(level)
    while level:
        holders = [box for box in level if box in inside and items[box].kind != "kernel"]
        level = [box for holder in holders for box in inside[holder]]
        if shown + len(level) > SCREENFUL and shown >= FEW:
            return
        shown += len(level)
        for holder in holders:
            items[holder].is_open = True
