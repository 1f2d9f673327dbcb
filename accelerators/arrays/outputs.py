"""The outputs of a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from partita.graph.errors import GraphError, did_you_mean


class NoSuchOutput(GraphError, KeyError):
    """A model has no output of that name."""

    __str__ = GraphError.__str__


class Outputs(Sequence[Any]):
    """The outputs in order; `outputs["y"]` finds one by name. The arrays belong to the caller."""

    __slots__ = ("_names", "_values")

    def __init__(self, values: list[Any], names: Mapping[str, int]) -> None:
        self._values = values
        self._names = names

    @overload
    def __getitem__(self, key: int | str) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> list[Any]: ...
    def __getitem__(self, key: int | str | slice) -> Any:
        if isinstance(key, str):
            if key not in self._names:
                hint = did_you_mean(key, self._names) or f"The outputs are {', '.join(self._names)}"
                raise NoSuchOutput(f"there is no output {key!r}", remedy=hint)
            return self._values[self._names[key]]
        return self._values[key]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    @property
    def names(self) -> tuple[str, ...]:
        """The outputs' names."""
        return tuple(self._names)

    def to_dict(self) -> dict[str, Any]:
        """The outputs by name."""
        return {name: self._values[i] for name, i in self._names.items()}

    def __repr__(self) -> str:
        shown = [f"{name}: {_described(self._values[i])}" for name, i in self._names.items()]
        return f"<Outputs {', '.join(shown)}>"


def _described(value: Any) -> str:
    # imported late: outputs exist before most of the graph's modules are loaded
    from partita.graph.types import dtype_name  # start-up

    return f"{dtype_name(value.dtype)}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
