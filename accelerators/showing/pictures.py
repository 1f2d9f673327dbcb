"""HETERO's two pictures: the device of each node, and the resulting subgraphs."""

from __future__ import annotations

import re
from pathlib import Path

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.placement.placement import Placement
from partita.accelerators.process.atomic import write_text
from partita.graph.graph import Graph
from partita.graph.pictures import to_dot


def write_affinity_dot(folder: Path, placement: Placement) -> None:
    """`hetero_affinity_<name>.dot`: the graph, each node in its device's colour."""
    text = to_dot(placement.graph, colour_by=lambda node: placement.get(node.name))
    write_text(_path(folder, "affinity", placement.graph), text)


def write_subgraphs_dot(folder: Path, graph: Graph) -> None:
    """`hetero_subgraphs_<name>.dot`: the partitioned graph, each subgraph in its device's colour."""
    write_text(_path(folder, "subgraphs", graph), to_dot(graph))


def _path(folder: Path, what: str, graph: Graph) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AcceleratorError(f"there can be no folder: {error.strerror}", where=str(folder)) from None
    return folder / f"hetero_{what}_{re.sub(r'[^A-Za-z0-9._-]', '_', graph.name)}.dot"
