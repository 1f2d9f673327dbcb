"""Automatic capsules of failures: a device fails to compile or to run a subgraph, or returns invalid outputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.device_list import Device
from partita.accelerators.store.capsules.capsule import Capsule, write_capsule
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.interpret import interpret
from partita.graph.logs import logger

MOST = 1000
"""Maximum number of capsules of one name in a folder."""


def keep_failure(
    folder: Path, name: str, graph: Graph, device: Device, config: Mapping[str, Any], reason: str, inputs: Sequence[Any] = ()
) -> None:
    """Writes a capsule of the subgraph to the folder, with the inputs on which it failed, if it ran.

    Never replaces the failure itself: if no capsule can be written, a warning gives the reason."""
    expected = _expected(graph, inputs)
    capsule = Capsule(graph, inputs if expected else (), expected, device, config, reason, plan={"subgraph": name})
    try:
        written = write_capsule(capsule, _free(folder, name))
    except (PartitaError, OSError) as error:
        warnings.warn(f"there is no capsule of subgraph {name!r}: {error}", stacklevel=2)
        return
    logger("capsules").warning("%s on %s is kept in %s: %s", name, device.label, written, reason)


def _expected(graph: Graph, inputs: Sequence[Any]) -> Sequence[Any]:
    """The outputs that numpy computes; empty if it cannot."""
    if len(inputs) != len(graph.inputs):
        return ()
    try:
        return interpret(graph, inputs)
    except PartitaError:
        return ()


def _free(folder: Path, name: str) -> Path:
    """A path of a folder that does not exist yet."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)[:80]
    for number in range(MOST):
        path = folder / (f"{plain}_{number}" if number else plain)
        if not path.exists():
            return path
    raise AcceleratorError(f"there are {MOST} capsules of it already", where=str(folder), remedy="Remove some")
