"""Names that no other node or value has."""

from __future__ import annotations


def unique(name: str, taken: set[str], counts: dict[str, int] | None = None) -> str:
    """The name, with a number behind it if it is taken; it is taken from then on.

    Who asks for many names gives `counts`, which remembers each name's last number, so that none is tried twice."""
    numbers = {} if counts is None else counts
    free_name = name
    while free_name in taken:
        count = numbers[name] = numbers.get(name, 0) + 1
        free_name = f"{name}_{count}"
    taken.add(free_name)
    return free_name
