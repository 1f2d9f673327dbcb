"""Watching a selector: every step of a growth, with the ops selected and rejected so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

import attrs

from partita.graph.formatting import counted
from partita.graph.graph import Graph, require_graph
from partita.partition.choose import Watchers, choose_groups
from partita.partition.errors import PartitionError
from partita.partition.growth import SeedObserver, WalkObserver
from partita.partition.hooks import Hooks, Witness
from partita.partition.op_index import OpIndex, build_op_index
from partita.partition.pattern import Pattern
from partita.partition.property import PatternProperty, SubgraphProperty
from partita.partition.selector import SubgraphSelector
from partita.partition.watch_view import around, mimebundle, svg, text
from partita.partition.with_types import with_types

Watched = SubgraphSelector | SubgraphProperty | Callable[[], SubgraphSelector]
"""A stateless selector, a selector's class (or a function that makes one), or a property."""


@attrs.frozen(slots=True)
class Frame:
    """One step."""

    text: str
    """The event."""
    selected: tuple[str, ...]
    """The ops in the growing subgraph, in the order of joining."""
    rejected: tuple[str, ...]
    """The ops that this growth refused, or that are excluded from it."""
    finished: tuple[tuple[str, ...], ...]
    """The complete subgraphs."""
    seed: str = ""
    """The seed of the growing subgraph; empty between two growths."""


@attrs.frozen(slots=True, eq=False, repr=False)
class Watch:
    """All steps. Print it, or display it in a notebook, which steps through a picture of the graph."""

    graph: Graph
    """The graph that was watched."""
    growth: str
    """The name of the growth that was watched."""
    frames: tuple[Frame, ...]
    """The steps in order."""
    groups: tuple[tuple[str, ...], ...]
    """The resulting subgraphs, by first op."""
    ops: tuple[str, ...] | None = None
    """The ops shown in a picture; None for all."""

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, step: int) -> Frame:
        return self.frames[step]

    def around(self, name: str | None = None) -> Watch:
        """The steps of one growth, and the part of the graph around it: the growth from this op, else the first one that
        reached it; without a name, the first of all. Notebooks display large graphs this way."""
        return around(self, name)

    def svg(self, step: int = -1) -> str:
        """The graph after one step, as SVG."""
        return svg(self, step)

    def html(self) -> str:
        """The page that a notebook shows, to write into a file."""
        shown = mimebundle(self)
        body = shown.get("text/html") or f"<pre>{escape(shown['text/plain'])}</pre>"
        return f'<!doctype html><meta charset="utf-8"><title>{escape(self.graph.name)}</title>{body}\n'

    def __str__(self) -> str:
        return text(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, str]:
        """Rich display in notebooks."""
        return mimebundle(self)

    def __repr__(self) -> str:
        return f"<Watch of {self.graph.name!r}: {counted(len(self.frames), 'step')}, {counted(len(self.groups), 'subgraph')}>"


def watch(graph: Graph, selector: Watched, growth: str | None = None) -> Watch:
    """Grows subgraphs and records every step; the graph is not changed.

    `growth` is "walk" (edge by edge, by calls of the selector) or "seed" (candidates with a rejected list and rollback); by
    default "seed" for a stateless selector, else "walk". Other growths have no steps to watch."""
    subject = _property(selector)
    typed = with_types(require_graph(graph))
    index = build_op_index(typed.graph)
    hooks = Hooks(subject, Witness(typed))
    first = hooks.new_selector()
    if isinstance(first, Pattern):
        raise PartitionError(
            "a Pattern is matched as a whole", where="watch", remedy="Look at plan(g, ...).borders, or watch a selector"
        )
    how = growth or ("seed" if first.stateless else "walk")
    if how not in ("walk", "seed"):
        raise PartitionError(
            f"growth {how!r} has no steps to watch",
            where="watch",
            remedy='Watch "walk" or "seed"; plan(g, ...) shows what it finds',
        )
    steps = _Steps(index)
    watchers = Watchers(walk=_WalkSteps(steps), seed=_SeedSteps(steps))
    groups, evidence = choose_groups(hooks, index, [], how, watchers)
    shown = tuple(sorted((steps.names(group) for group in groups), key=lambda names: index.number[typed.graph[names[0]]]))
    for repair in evidence.repairs:
        parts = " and ".join(map(_braces, map(steps.names, repair.by)))
        steps.add(f"{_braces(steps.names(repair.replaced))} would close a cycle with another subgraph: it becomes {parts}", shown)
    steps.add(f"the result: {', '.join(map(_braces, shown)) or 'no subgraph'}", shown)
    return Watch(graph, how, tuple(steps.frames), shown)


def _property(watched: Watched) -> SubgraphProperty:
    if isinstance(watched, SubgraphProperty):
        return watched
    if isinstance(watched, SubgraphSelector):
        return PatternProperty(watched, "watched")
    if callable(watched):
        return _Made(watched)
    raise PartitionError(
        f"{watched!r:.80} is not a selector", where="watch", remedy="Give a selector, its class, or a property that makes one"
    )


class _Made(SubgraphProperty):
    """A property around a selector's class."""

    name = "watched"

    def __init__(self, make: Callable[[], SubgraphSelector]) -> None:
        self._make = make

    def create_subgraph_selector(self) -> SubgraphSelector | Pattern:
        return self._make()


class _Steps:
    """The frames so far, and the sets of the next one."""

    def __init__(self, index: OpIndex) -> None:
        self._nodes = index.nodes
        self.frames: list[Frame] = []
        self.selected: list[int] = []
        self.rejected: list[int] = []
        self.finished: list[tuple[str, ...]] = []
        self.seed = ""

    def name(self, v: int) -> str:
        return self._nodes[v].name

    def names(self, numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.name(v) for v in numbers)

    def begin(self, v: int) -> None:
        self.selected, self.rejected, self.seed = [v], [], self.name(v)

    def reject(self, numbers: Sequence[int]) -> None:
        out = set(numbers)
        self.selected = [v for v in self.selected if v not in out]
        self.rejected += [v for v in numbers if v not in self.rejected]

    def end(self) -> None:
        self.selected, self.rejected, self.seed = [], [], ""

    def add(self, text: str, finished: Sequence[tuple[str, ...]] | None = None) -> None:
        done = tuple(self.finished if finished is None else finished)
        self.frames.append(Frame(text, self.names(self.selected), self.names(self.rejected), done, self.seed))


class _WalkSteps(WalkObserver):
    """Growth "walk", step by step."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps

    def unselected(self, node: int) -> None:
        self._steps.add(f"select({self._steps.name(node)}): no")

    def started(self, seed: int) -> None:
        self._steps.begin(seed)
        self._steps.add(f"select({self._steps.name(seed)}): yes, a subgraph starts")

    def joined(self, cur: int, new: int, direction: str) -> None:
        if new in self._steps.rejected:
            self._steps.rejected.remove(new)
        self._steps.selected.append(new)
        self._steps.add(f"{self._question(cur, new, direction)}: yes")

    def refused(self, cur: int, new: int, direction: str) -> None:
        self._steps.reject([new])
        self._steps.add(f"{self._question(cur, new, direction)}: no")

    def passed_over(self, cur: int, new: int, direction: str, closed: int) -> None:
        self._steps.reject([new])
        name = self._steps.name
        self._steps.add(f"{name(new)} is not offered: joining would close a cycle through {name(closed)}")

    def left_unexpanded(self, node: int, closed: int) -> None:
        name = self._steps.name
        self._steps.add(f"the neighbours of {name(node)} are not offered, since {name(closed)} reaches it")

    def dropped(self, seed: int, nodes: Sequence[int]) -> None:
        self._steps.begin(seed)
        self._steps.reject(nodes)
        self._steps.add(f"a path comes back to {_braces(self._steps.names(nodes))}: growth starts again without them")

    def filtered(self, seed: int, nodes: Sequence[int]) -> None:
        self._steps.reject(nodes)
        self._steps.add(f"filter removes {_braces(self._steps.names(nodes))}")

    def cut(self, seed: int, nodes: Sequence[int]) -> None:
        self._steps.reject(nodes)
        self._steps.add(f"what filter left closes a cycle: {_braces(self._steps.names(nodes))} are cut off")

    def finished(self, seed: int, groups: Sequence[Sequence[int]]) -> None:
        named = [self._steps.names(group) for group in groups]
        self._steps.finished += named
        self._steps.add(f"finished: {', '.join(map(_braces, named)) or 'nothing is left'}")
        self._steps.end()

    def _question(self, cur: int, new: int, direction: str) -> str:
        return f"select_{direction}({self._steps.name(cur)}, {self._steps.name(new)})"


class _SeedSteps(SeedObserver):
    """Growth "seed", step by step."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps

    def rooted(self, root: int) -> None:
        self._steps.begin(root)
        self._steps.add(f"root {self._steps.name(root)}")

    def merged(self, node: int) -> None:
        self._steps.selected.append(node)
        self._steps.add(f"merge {self._steps.name(node)}")

    def rejected(self, node: int) -> None:
        self._steps.reject([node])
        self._steps.add(f"{self._steps.name(node)} may not join: rejected")

    def rolled_back(self, node: int) -> None:
        self._steps.reject([node])
        self._steps.add(f"a path leaves and comes back through a rejected node: roll back {self._steps.name(node)}")

    def grown(self, members: Sequence[int]) -> None:
        self._steps.add(f"candidate: {_braces(self._steps.names(members))}")
        self._steps.end()

    def chosen(self, members: Sequence[int]) -> None:
        self._steps.finished.append(self._steps.names(members))
        self._steps.add(f"the largest candidate becomes a subgraph: {_braces(self._steps.names(members))}")


def _braces(names: Sequence[str]) -> str:
    return "{" + ", ".join(names) + "}"
