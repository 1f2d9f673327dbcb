"""Names that nothing else bears."""

from __future__ import annotations


def unique(name: str, taken: set[str], counts: dict[str, int] | None = None) -> str:
    """The name, with a number behind it if it is taken; it is taken from then on.

    Who asks for many names gives `counts`, which remembers each name's last number, so that none is tried twice."""
    numbers = {} if counts is None else counts
    made = name
    while made in taken:
        count = numbers[name] = numbers.get(name, 0) + 1
        made = f"{name}_{count}"
    taken.add(made)
    return made
