"""Orders steps so that asynchronous devices start early and their results are needed late."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Ordered(Protocol):
    """A step that reads and writes numbered slots."""

    @property
    def reads(self) -> tuple[int, ...]:
        """The slots that it reads."""

    @property
    def makes(self) -> tuple[int, ...]:
        """The slots that it writes."""


OneStep = TypeVar("OneStep", bound=Ordered)


def begun_early(steps: Sequence[OneStep], overlaps: Sequence[bool]) -> list[OneStep]:
    """The steps in another valid order: among ready steps, overlapping ones come first; then those that do not depend on an
    overlapping one, beginning with those that other overlapping steps need. Near-linear."""
    if not any(overlaps) or all(overlaps):
        return list(steps)
    maker = {slot: i for i, step in enumerate(steps) for slot in step.makes}
    needs = [{maker[slot] for slot in step.reads if slot in maker} for step in steps]
    readers: list[list[int]] = [[] for _ in steps]
    for i, makers in enumerate(needs):
        for j in makers:
            readers[j].append(i)
    leads = [False] * len(steps)
    for i in reversed(range(len(steps))):
        leads[i] = any(overlaps[reader] or leads[reader] for reader in readers[i])
    waits = [any(overlaps[j] for j in makers) for makers in needs]
    missing = [len(makers) for makers in needs]
    ready = [(not overlaps[i], waits[i], not leads[i], i) for i in range(len(steps)) if not missing[i]]
    heapq.heapify(ready)
    ordered: list[OneStep] = []
    while ready:
        i = heapq.heappop(ready)[-1]
        ordered.append(steps[i])
        for reader in readers[i]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (not overlaps[reader], waits[reader], not leads[reader], reader))
    return ordered


def ends_of(steps: Sequence[Ordered], overlaps: Sequence[bool]) -> dict[int, int]:
    """The deadline of each overlapping step, by step number: the first step that reads its outputs, or else the number of all
    steps."""
    first: dict[int, int] = {}
    for i in reversed(range(len(steps))):
        first.update(dict.fromkeys(steps[i].reads, i))
    whole = len(steps)
    return {
        i: min((first.get(slot, whole) for slot in step.makes), default=whole)
        for i, step in enumerate(steps) if overlaps[i]
    }
