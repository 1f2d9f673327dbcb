"""Description of an exported subgraph: its launches, and the sources of its outputs and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.tvm.compiled.subgraph import Launch
from partita.graph.types import Array


@attrs.frozen(slots=True, eq=False)
class ExportedWords:
    """The description, parsed and checked against the weights that came with it."""

    launches: tuple[Launch, ...]
    weights: tuple[Array, ...]
    """Constants that the kernels read."""
    outputs: tuple[int | Array, ...]
    """Source of each output, as in `Assembled`."""
    checks: tuple[str, ...]
    notes: tuple[str, ...]


def read_words(words: Mapping[str, Any], weights: Sequence[Array], where: str) -> ExportedWords:
    """The parsed description; AcceleratorError if its form is unknown or it is for other weights."""
    try:
        needed, origins = int(words["weights"]), list(words["outputs"])
        launches = tuple(map(Launch.of, words["launches"]))
        checks, notes = (tuple(map(str, words.get(key, ()))) for key in ("checks", "notes"))
        numbers = [None if origin == "constant" else int(origin) for origin in origins]
    except (TypeError, ValueError, KeyError, AttributeError):
        cause = "its list of launches is not what this version of Partita writes"
        raise AcceleratorError(cause, where=where, remedy="Compile the model again") from None
    constants = numbers.count(None)
    if needed != len(weights) or constants > needed:
        raise AcceleratorError(f"it needs {max(needed, constants)} weights, and {len(weights)} came with it", where=where)
    own, late = weights[: needed - constants], iter(weights[needed - constants :])
    outputs = tuple(next(late) if number is None else number for number in numbers)
    return ExportedWords(launches, tuple(own), outputs, checks, notes)
