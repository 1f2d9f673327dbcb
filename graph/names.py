"""Names that no other node or value has."""

from __future__ import annotations


def unique(name: str, taken: set[str], counts: dict[str, int] | None = None) -> str:
    """The name, with a number appended if it is taken; it is then marked as taken.

    `counts` keeps the last number of each name, so that many calls do not try a number twice."""
    numbers = {} if counts is None else counts
    free_name = name
    while free_name in taken:
        count = numbers[name] = numbers.get(name, 0) + 1
        free_name = f"{name}_{count}"
    taken.add(free_name)
    return free_name
