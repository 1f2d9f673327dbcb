"""Names for nodes and values: MXNet's own, with a number appended to repeated ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partita.graph.node import NOTHING, frozen_attrs
from partita.graph.readers.mxnet.symbol import Symbol

__all__ = ["Names", "noted_name", "unique", "variable_names"]

NAME = "mxnet.name"
"""The metadata key of the name in the file of a renamed node."""


class Names:
    """Assigns names, unique among the nodes and among the values; `ops` has the names of op nodes in all enclosing graphs.

    The output of node `fc` is `fc_output`, as in MXNet; several are `fc_output0`, `fc_output1`."""

    def __init__(self, nodes: Iterable[str], variables: Iterable[str], ops: set[str]) -> None:
        self._reserved = set(nodes)
        self.ops = ops
        variables = list(variables)
        self._nodes = set(variables)
        self._values = set(variables)
        self._counts: dict[str, int] = {}

    def node(self, name: str) -> str:
        """The name of a node of the file: its own, unless it is taken."""
        free_name = self._free(name, self._nodes, self.ops)
        self._nodes.add(free_name)
        self.ops.add(free_name)
        return free_name

    def outputs(self, name: str, count: int) -> tuple[str, ...]:
        """The names of the values of a node of the file."""
        stems = [f"{name}_output"] if count == 1 else [f"{name}_output{i}" for i in range(count)]
        return tuple(map(self._value, stems))

    def fresh(self, name: str) -> str:
        """A name for a node and its value that no node of the file has."""
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
    """The names, with a number appended to repeated ones."""
    given = Names((), (), set())
    return [given.fresh(name) for name in names]


def variable_names(symbol: Symbol) -> dict[int, str]:
    """The name of each variable, by node number: in MXNet several variables may have one name."""
    names = Names((node.name for node in symbol.nodes), (), set())
    new_names: dict[int, str] = {}
    seen: set[str] = set()
    for i, node in enumerate(symbol.nodes):
        if node.is_variable:
            new_names[i] = names.fresh(node.name) if node.name in seen else node.name
            seen.add(node.name)
    return new_names


def noted_name(given: str, name: str) -> Mapping[str, str]:
    """Metadata with the name in the file, if the node has another name now."""
    return NOTHING if given == name else frozen_attrs({NAME: given})
