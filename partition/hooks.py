"""Calls of a property's hooks: any failure in one becomes an error that names it, and the graph is left unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.partition.errors import PartitionError, WrongAnswer, hook_error, not_a, raised
from partita.partition.pattern import Pattern
from partita.partition.property import SubgraphProperty, overridden_hooks
from partita.partition.selector import SubgraphSelector, takes
from partita.partition.with_types import Typed

Answer = TypeVar("Answer")

Chooser = SubgraphSelector | Pattern
"""A selector or a pattern that chose a subgraph."""


class _GraphState:
    """The state of one graph before the hooks saw it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._attrs = dict(graph.attrs)
        self._affinities = [node.affinity for node in graph.nodes]

    def changed_node(self) -> Node | None:
        """A node whose affinity has changed, or None. Linear."""
        if [node.affinity for node in self.graph.nodes] == self._affinities:
            return None
        return next(n for n, a in zip(self.graph.nodes, self._affinities, strict=True) if n.affinity != a)

    def changed_keys(self) -> list[str]:
        """The keys of attributes that have changed."""
        now, then = self.graph.attrs, self._attrs
        if not now and not then:
            return []
        return sorted(map(str, {k for k in {*now, *then} if now.get(k, self) is not then.get(k, self)}))

    def restore(self) -> None:
        """Restores the state."""
        self.graph.attrs.clear()
        self.graph.attrs.update(self._attrs)
        for node, affinity in zip(self.graph.nodes, self._affinities, strict=True):
            if node.affinity != affinity:
                node.affinity = affinity


class Witness:
    """The state of the graph before the hooks saw it, to detect whether one of them changed it.

    As a context manager it restores the graph if an error is raised, because a hook may change the graph before it
    fails."""

    def __init__(self, typed: Typed) -> None:
        """Records the graph that the hooks see, and the original one, which a hook may have kept."""
        self._before = [_GraphState(graph) for graph in dict.fromkeys((typed.graph, typed.source))]

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._restore()

    def check(self, property_name: str, hook: str) -> None:
        """Restores the graph and raises if it was changed. Linear."""
        self.check_attrs(property_name, hook)
        for before in self._before:
            changed = before.changed_node()
            if changed is not None:
                self._restore()
                cause = "it set the affinity of a node of the graph that it was shown"
                raise hook_error(property_name, hook, changed, cause, SHOWN)

    def check_attrs(self, property_name: str, hook: str) -> None:
        """Like `check`, for the graph's attributes only: cheap enough to do after every hook."""
        for before in self._before:
            keys = before.changed_keys()
            if keys:
                self._restore()
                where = f"graph {before.graph.name!r}"
                raise hook_error(property_name, hook, where, f"it changed the graph's attributes: {', '.join(keys)}", SHOWN)

    def _restore(self) -> None:
        for before in self._before:
            before.restore()


SHOWN = "A hook must not change what it is shown; it may return changed copies where it returns something"


class Hooks:
    """The hooks of one property, with every answer checked."""

    def __init__(self, subject: SubgraphProperty, witness: Witness, device: str | None = None) -> None:
        self.property = subject
        self.name = subject.name
        self.witness = witness
        self.device = device
        """The device if this is its own property: the nodes that it makes stay there."""
        own = overridden_hooks(subject)
        self._own = {hook.name for hook in own}
        self.sees_bodies = any(hook.sees_bodies for hook in own)
        """True if the property sees bodies, so that the types of their inputs matter."""
        self.is_plain = not any(hook.sees_bodies or hook.connects for hook in own)
        """True if its calls are plain ones."""
        self._takes_selector: dict[str, bool] = {}

    def overrides(self, hook: str) -> bool:
        """True if the property overrides this hook."""
        return hook in self._own

    def error(self, hook: str, node: Node | str | None, cause: str, remedy: str | None = None) -> PartitionError:
        """The error for one of these hooks."""
        return hook_error(self.name, hook, node, cause, remedy)

    def call(self, hook: str, node: Node | str | None, function: Callable[..., Answer], *args: Any) -> Answer:
        """Calls a hook; `node` is the first of its subgraph."""
        try:
            answer = function(*args)
        except Exception as error:
            raise self.error(hook, node, raised(error)) from error
        self.witness.check_attrs(self.name, hook)
        return answer

    def call_for_list(self, hook: str, node: Node, kind: str, function: Callable[..., Iterable[Any]], *args: Any) -> list[Any]:
        """Calls a hook that returns several items, in any iterable; `kind` describes the expected items."""

        def listed() -> list[Any]:
            answer = function(*args)
            if isinstance(answer, (str, Node)) or not isinstance(answer, Iterable):
                raise WrongAnswer(not_a(kind, answer))
            return list(answer)  # a generator may fail only here

        return self.call(hook, node, listed)

    def new_selector(self) -> SubgraphSelector | Pattern:
        """A new selector (or pattern) of the property."""
        selector = self.call("create_subgraph_selector", None, self.property.create_subgraph_selector)
        if not isinstance(selector, (SubgraphSelector, Pattern)):
            raise self.error("create_subgraph_selector", None, not_a("a SubgraphSelector or a Pattern", selector))
        return selector

    def ask(self, hook: str, node: Node, question: Callable[..., Any], *args: Node) -> bool:
        """The answer of a yes-or-no hook about `node`."""
        try:
            answer = question(*args)
        except Exception as error:
            raise self.error(hook, node, raised(error)) from error
        return answer if answer is True or answer is False else self.as_bool(hook, node, answer)

    def as_bool(self, hook: str, node: Node, answer: Any) -> bool:
        """The answer as a bool; raises for any other type."""
        if isinstance(answer, (bool, np.bool_)):
            return bool(answer)
        raise self.error(hook, node, not_a("a bool", answer), "Selectors answer True or False; bool(...) makes one of any value")

    def review(self, subgraph: Graph, index: int, node: Node) -> Mapping[str, Any] | None:
        """The attributes that `review_subgraph` adds to the call; None if it declines the subgraph."""
        if not self.overrides("review_subgraph"):
            return {}
        answer = self.call("review_subgraph", node, self.property.review_subgraph, subgraph, index)
        if isinstance(answer, (bool, np.bool_)):
            return {} if answer else None
        if isinstance(answer, Mapping) and all(isinstance(key, str) for key in answer):
            return answer
        raise self.error("review_subgraph", node, not_a("a bool or attributes", answer))

    def init_inputs(self, variables: list[Node], entries: Sequence[NodeEntry], node: Node) -> list[Node]:
        """The body's inputs returned by `init_subgraph_inputs`."""
        hook, kind = "init_subgraph_inputs", f"{len(variables)} variables"
        returned = self.call_for_list(hook, node, kind, self.property.init_subgraph_inputs, tuple(variables), tuple(entries))
        if len(returned) != len(variables) or not all(isinstance(v, Node) and v.is_variable for v in returned):
            raise self.error(hook, node, not_a(kind, returned))
        if len(set(returned)) < len(returned):
            raise self.error(hook, node, "it returned one variable for two inputs")
        return returned

    def create(self, subgraph: Graph, index: int, node: Node, selector: Chooser | None) -> Node | None:
        """The node that `create_subgraph_node` makes; None if it leaves the nodes unchanged."""
        hook = "create_subgraph_node"
        if not self.overrides(hook):
            return self.property.create_subgraph_node(subgraph, index)
        created = self.call(hook, node, self._with_selector(hook, selector), subgraph, index)
        if created is None:
            return None
        if not isinstance(created, Node):
            raise self.error(hook, node, not_a("a Node or None", created))
        if not created.is_op:
            raise self.error(hook, node, not_a("an op or a call", created))
        return created

    def _with_selector(self, hook: str, selector: Chooser | None) -> Callable[..., Any]:
        """The hook, with the selector bound if it has an argument of that name."""
        function = getattr(self.property, hook)
        if hook not in self._takes_selector:
            self._takes_selector[hook] = takes(function, "selector")
        return partial(function, selector=selector) if self._takes_selector[hook] else function

    def adjust(self, nodes: list[Node], index: int, selector: Chooser | None) -> list[Node]:
        """The changed copies that `adjust_subgraph_node` returns; the nodes themselves if it leaves them unchanged."""
        hook, kind = "adjust_subgraph_node", f"{len(nodes)} nodes"
        function = self._with_selector(hook, selector)

        def ask() -> Iterable[Node]:
            answer = function(tuple(nodes), index)
            return nodes if answer is None else answer

        returned = self.call_for_list(hook, nodes[0], kind, ask)
        if len(returned) != len(nodes) or not all(isinstance(node, Node) for node in returned):
            raise self.error(hook, nodes[0], not_a(kind, returned))
        for old, new in zip(nodes, returned, strict=True):
            if _interface(new) != _interface(old):
                cause = "its copy reads or makes other values than the node"
                raise self.error(hook, old, cause, "Change it with node.evolve(attrs=...)")
            self.check_device(hook, old, new)
        return returned

    def check_device(self, hook: str, first: Node, created: Node) -> None:
        """Raises if a device's own property makes a node for another device."""
        if self.device is not None and created.affinity not in (None, self.device):
            cause = f"it returned a node with the affinity {created.affinity!r}, for a subgraph on {self.device!r}"
            remedy = "Leave the affinity out; create_subgraph_node returns None to give a subgraph to the next device"
            raise self.error(hook, first, cause, remedy)


def _interface(node: Node) -> tuple[object, ...]:
    """The parts of a node that connect it to others, for a comparison."""
    return node.name, node.inputs, node.captures, node.after, node.output_names, len(node.output_types)
