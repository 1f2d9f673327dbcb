"""Names for nodes and values: MXNet's own where they are unique, with a number after them where not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partita.graph.node import NOTHING, frozen_attrs
from partita.graph.readers.mxnet.symbol import Symbol

__all__ = ["Names", "noted_name", "unique", "variable_names"]

NAME = "mxnet.name"
"""The metadata key under which a renamed node keeps the name that the file gives it."""


class Names:
    """Gives out names, each once among the nodes and once among the values; `ops` are those of all the graphs around.

    What MXNet calls the output of node `fc` is `fc_output`; of several, `fc_output0`, `fc_output1`."""

    def __init__(self, nodes: Iterable[str], variables: Iterable[str], ops: set[str]) -> None:
        self._reserved = set(nodes)
        self.ops = ops
        variables = list(variables)
        self._nodes = set(variables)
        self._values = set(variables)
        self._counts: dict[str, int] = {}

    def node(self, name: str) -> str:
        """The name of a node of the file: its own, unless an earlier one had it."""
        free_name = self._free(name, self._nodes, self.ops)
        self._nodes.add(free_name)
        self.ops.add(free_name)
        return free_name

    def outputs(self, name: str, count: int) -> tuple[str, ...]:
        """The names of such a node's values."""
        stems = [f"{name}_output"] if count == 1 else [f"{name}_output{i}" for i in range(count)]
        return tuple(map(self._value, stems))

    def fresh(self, name: str) -> str:
        """A name for a node and its value that no node of the file has either."""
        free_name = self._free(name, self._nodes, self._values, self._reserved, self.ops)
        self._nodes.add(free_name)
        self.ops.add(free_name)
        self._values.add(free_name)
        return free_name

    def _value(self, name: str) -> str:
        free_name = self._free(name, self._values)
        self._values.add(free_name)
        return free_name

    def _free(self, name: str, *taken: set[str]) -> str:
        free_name = name
        while any(free_name in names for names in taken):
            self._counts[name] = count = self._counts.get(name, 0) + 1
            free_name = f"{name}_{count}"
        return free_name


def unique(names: Sequence[str]) -> list[str]:
    """The names, with a number after those that stand there again."""
    given = Names((), (), set())
    return [given.fresh(name) for name in names]


def variable_names(symbol: Symbol) -> dict[int, str]:
    """The name of each variable, by node number: MXNet tells variables of one name apart by their numbers alone."""
    names = Names((node.name for node in symbol.nodes), (), set())
    new_names: dict[int, str] = {}
    seen: set[str] = set()
    for i, node in enumerate(symbol.nodes):
        if node.is_variable:
            new_names[i] = names.fresh(node.name) if node.name in seen else node.name
            seen.add(node.name)
    return new_names


def noted_name(given: str, name: str) -> Mapping[str, str]:
    """The metadata of a node without other metadata: the name that the file gives it, where it bears another."""
    return NOTHING if given == name else frozen_attrs({NAME: given})
