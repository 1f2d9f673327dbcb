"""Names for nodes and values: MXNet's own where they are unique, with a number after them where not."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Names"]


class Names:
    """Gives out names, each once.

    What MXNet calls the output of node `fc` is `fc_output`; of several, `fc_output0`, `fc_output1`."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._reserved = set(reserved)
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def node(self, name: str) -> str:
        """The name of a node of the file: its own, unless an earlier one had it."""
        return self._first_free(name, self._taken)

    def outputs(self, name: str, count: int) -> tuple[str, ...]:
        """The names of such a node's values."""
        stems = [f"{name}_output"] if count == 1 else [f"{name}_output{i}" for i in range(count)]
        return tuple(self._first_free(stem, self._taken) for stem in stems)

    def fresh(self, name: str) -> str:
        """A name that no node of the file has either."""
        return self._first_free(name, self._taken, self._reserved)

    def _first_free(self, name: str, *sets: set[str]) -> str:
        made = name
        while any(made in names for names in sets):
            self._counts[name] = count = self._counts.get(name, 0) + 1
            made = f"{name}_{count}"
        self._taken.add(made)
        return made
