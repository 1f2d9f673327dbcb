"""Selectors: which nodes a subgraph may start at, and which edges it may follow."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np

from partita.graph.errors import PartitaError
from partita.graph.node import Node
from partita.partition.errors import WrongAnswer, not_a

Labeler = Callable[[Node], Hashable | None]
"""Gives the label of the subgraphs that a node may be in (True, or a device); None if it may be in none."""


QUESTIONS = ("select", "select_input", "select_output")
"""The methods of a selector that answer yes or no."""


class SubgraphSelector:
    """Override `select`, `select_input` and `select_output`; a new selector is made for every subgraph's seed.

    Only ops are offered: never variables, constants, calls that an earlier partition made, nodes that nothing needs,
    or nodes that are in a subgraph already. Selectors combine: `a | b`, `a & b`, `~a`.
    """

    stateless: bool = False
    """True promises that the answers depend on the nodes alone. Then one selector serves the whole graph, `select` says which
    nodes may be in a subgraph at all, and an edge u→v is followed if `select_output(u, v)` and `select_input(v, u)` agree."""

    def select(self, node: Node) -> bool:
        """May a subgraph start here?"""
        raise NotImplementedError("a selector has to define select(node)")

    def select_input(self, cur: Node, new: Node) -> bool:
        """May `new`, which makes a value that `cur` reads, join the subgraph that `cur` is in?"""
        return False

    def select_output(self, cur: Node, new: Node) -> bool:
        """May `new`, which reads a value that `cur` makes, join the subgraph that `cur` is in?"""
        return False

    def filter(self, candidates: list[Node]) -> list[Node]:
        """The last word: the candidates, in topological order, that are to stay.

        It may take the graph too: `filter(self, graph, candidates)`, as in MXNet, or `filter(self, candidates, graph=None)`."""
        return candidates

    def why_not(self, node: Node) -> str | None:
        """Why `select` says no to the node, in words for the report; None: there is nothing to add to that."""
        return None

    def reset(self) -> None:
        """Called before a second growth from the same seed (the first closed a cycle). Forget what was seen since `select`."""

    def op_names(self) -> Iterable[str]:
        """The names of ops that it looks for, if it does: the report notes those that no op has."""
        return ()

    def labeler(self) -> Labeler | None:
        """If every answer is "both nodes have the same label", what labels them: then no edge needs to be asked about."""
        return None

    def __or__(self, other: SubgraphSelector) -> SubgraphSelector:
        from partita.partition.combine import EitherSelector  # upward: an operator is a method

        return EitherSelector(self, other) if isinstance(other, SubgraphSelector) else NotImplemented

    def __and__(self, other: SubgraphSelector) -> SubgraphSelector:
        from partita.partition.combine import BothSelector  # upward: an operator is a method

        return BothSelector(self, other) if isinstance(other, SubgraphSelector) else NotImplemented

    def __invert__(self) -> SubgraphSelector:
        from partita.partition.combine import InverseSelector  # upward: an operator is a method

        return InverseSelector(self)


class ContainOpSelector(SubgraphSelector):
    """Nodes of certain ops, nodes that a predicate likes, or (no argument) nodes whose affinity equals the seed's.

    A plain op name means ONNX's own op; one of another domain is written "domain::Op".

    >>> ContainOpSelector({"Conv", "Relu", "com.microsoft::Gelu"})
    ContainOpSelector({'Conv', 'Relu', 'com.microsoft::Gelu'})
    """

    stateless = True

    def __init_subclass__(cls, **keywords: object) -> None:
        """A subclass that answers in its own way may keep state, unless it says `stateless = True` itself."""
        super().__init_subclass__(**keywords)
        if "stateless" not in cls.__dict__ and not {*QUESTIONS, "reset"}.isdisjoint(cls.__dict__):
            cls.stateless = False

    def __init__(self, ops: Iterable[str] | Callable[[Node], bool] | None = None) -> None:
        if isinstance(ops, str) or not (ops is None or callable(ops) or isinstance(ops, Iterable)):
            raise PartitaError(
                f"{ops!r} is no set of op names",
                where="ContainOpSelector",
                remedy=f"Write ContainOpSelector({{{ops!r}}})" if isinstance(ops, str) else "Give names, a predicate or nothing",
            )
        self.predicate: Callable[[Node], bool] | None = ops if callable(ops) else None
        """The predicate on nodes, if it was given one."""
        self.ops: frozenset[tuple[str, str]] | None = None
        """The (domain, op) pairs, if it was given op names."""
        if ops is not None and not callable(ops):
            self.ops = frozenset(domain_and_op(name) for name in ops)

    def op_names(self) -> Iterable[str]:
        return () if self.ops is None else sorted(f"{domain}::{op}" if domain else op for domain, op in self.ops)

    @property
    def by_affinity(self) -> bool:
        """Does it go by the seed's affinity?"""
        return self.ops is None and self.predicate is None

    def select(self, node: Node) -> bool:
        return self.label(node) is not None

    def select_input(self, cur: Node, new: Node) -> bool:
        return self._same(cur, new)

    def select_output(self, cur: Node, new: Node) -> bool:
        return self._same(cur, new)

    def _same(self, cur: Node, new: Node) -> bool:
        label = self.label(new)
        return label is not None and (not self.by_affinity or label == cur.affinity)

    def label(self, node: Node) -> Hashable | None:
        """The node's affinity, or True for a node that may be in a subgraph; else None."""
        if self.ops is not None:
            return True if (node.domain, node.op) in self.ops else None
        if self.predicate is None:
            return node.affinity
        answer = self.predicate(node)
        if isinstance(answer, (bool, np.bool_)):
            return True if answer else None
        raise WrongAnswer(not_a("a bool", answer))

    def labeler(self) -> Labeler | None:
        ours = all(getattr(type(self), name) is getattr(ContainOpSelector, name) for name in QUESTIONS)
        return self.label if ours else None

    def __repr__(self) -> str:
        if self.ops is None:
            return f"ContainOpSelector({'' if self.predicate is None else self.predicate!r})"
        return f"ContainOpSelector({{{', '.join(map(repr, self.op_names()))}}})"


def domain_and_op(name: str) -> tuple[str, str]:
    """"domain::Op" as a pair; a plain name is ONNX's own."""
    if not isinstance(name, str) or not name:
        raise PartitaError(f"{name!r} is no op name", remedy='Op names are strings such as "Conv" or "com.microsoft::Gelu"')
    domain, _, op = name.rpartition("::")
    return ("" if domain == "ai.onnx" else domain, op)
