"""One growth of a watch of a large graph: its steps, and the part of the graph around its seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import chain, groupby
from typing import TYPE_CHECKING

import attrs

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.errors import PartitionError

if TYPE_CHECKING:
    from partita.partition.watching import Frame, Watch

MOST_OPS = 80
"""Maximum number of ops in a picture of a growth: first those that the growth met, then those nearest to its seed."""

REACH = 2
"""Distance in edges from the ops that the growth met up to which others are shown."""


def around(watch: Watch, name: str | None = None) -> Watch:
    """The growth that began at this op, or else the first that accepted or refused it; without a name, the first of all.

    Linear in the graph and in the steps."""
    run = _run(watch, name)
    ops = tuple(_window(watch.graph, _came_to(run)))
    return attrs.evolve(watch, frames=tuple(run), ops=ops)


def seeds(frames: Sequence[Frame]) -> list[str]:
    """The ops at which growths began, in order."""
    return list(dict.fromkeys(frame.seed for frame in frames if frame.seed))


def _run(watch: Watch, name: str | None) -> list[Frame]:
    """The consecutive steps of one growth."""
    runs = [(seed, list(run)) for seed, run in groupby(watch.frames, key=lambda frame: frame.seed) if seed]
    if name is None and runs:
        return runs[0][1]
    begun = [run for seed, run in runs if seed == name]
    met = [run for _, run in runs if name in set(_came_to(run))]
    if not begun and not met:
        raise _not_met(watch, name, [seed for seed, _ in runs])
    return (begun or met)[0]


def _not_met(watch: Watch, name: str | None, begun: Sequence[str]) -> PartitionError:
    if not begun:
        return PartitionError("no growth began: the selector starts at no op", where="around", remedy="print(steps) tells each")
    if name is not None and name in watch.graph and watch.graph[name].is_op:
        cause = f"no growth came to {name!r}"
    else:
        cause = f"graph {watch.graph.name!r} has no op {name!r}"
    near = ", ".join(map(repr, get_close_matches(str(name), begun, 3, 0.5) or begun[:3]))
    return PartitionError(cause, where="around", remedy=f"Growths began at {near} ({len(set(begun))} in all)")


def _came_to(run: Sequence[Frame]) -> list[str]:
    """The ops that a growth accepted or refused, in order."""
    return list(dict.fromkeys(chain.from_iterable(chain((frame.seed,), frame.selected, frame.rejected) for frame in run)))


def _window(graph: Graph, names: Sequence[str]) -> Iterator[str]:
    """These ops and those around them, up to the limit of a picture."""
    shown = dict.fromkeys(names[:MOST_OPS])
    rim: list[Node] = [graph[name] for name in shown]
    for _ in range(REACH):
        rim = [node for node in _beside(graph, rim) if node.name not in shown][: MOST_OPS - len(shown)]
        shown |= dict.fromkeys(node.name for node in rim)
    return iter(shown)


def _beside(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    """The producers and consumers of these ops, each once."""
    beside: dict[Node, None] = {}
    for node in nodes:
        beside |= dict.fromkeys(entry.node for entry in node.reads if entry.node.is_op)
        beside |= dict.fromkeys(reader for reader in graph.consumers(node) if reader.is_op)
    return list(beside)
