"""Selectors: the nodes at which a subgraph may start, and the edges that it may follow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar

import numpy as np

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.errors import WrongAnswer, not_a, warn_of_capitals

# ruff: noqa: C419  the lists make sure that every part of a combination is called

Labeler = Callable[[Node], Hashable | None]
"""Returns the label of the subgraphs that a node may be in (True, or a device), or None."""


MOST_TEXTS = 1000
"""Maximum size of a collection that is searched for op names."""

QUESTIONS = ("select", "select_input", "select_output")
"""The methods of a selector that return a bool."""


class SubgraphSelector:
    """Override `select`, `select_input` and `select_output`; a new selector is made for every subgraph's seed.

    Only ops are offered: never variables, constants, calls that an earlier partition made, nodes that nothing needs,
    or nodes that are in a subgraph already. Selectors combine: `a | b`, `a & b`, `~a`."""

    def __init_subclass__(cls, **keywords: object) -> None:
        """Warns of hooks that have MXNet's names."""
        super().__init_subclass__(**keywords)
        warn_of_capitals(cls, SubgraphSelector)

    stateless: bool = False
    """True if the answers depend on the nodes alone. Then one selector serves the whole graph, `select` returns whether a
    node may be in a subgraph at all, and an edge u→v is followed if `select_output(u, v)` and `select_input(v, u)` are true."""

    def select(self, node: Node) -> bool:
        """True if a subgraph may start at the node."""
        raise NotImplementedError("a selector has to define select(node)")

    def select_input(self, cur: Node, new: Node) -> bool:
        """True if `new`, a producer of a value that `cur` reads, may join the subgraph of `cur`."""
        return False

    def select_output(self, cur: Node, new: Node) -> bool:
        """True if `new`, a consumer of a value of `cur`, may join the subgraph of `cur`."""
        return False

    def filter(self, candidates: list[Node]) -> list[Node]:
        """The final choice: the candidates, in topological order, that are kept.

        It may take the graph too: `filter(self, graph, candidates)`, as in MXNet, or `filter(self, candidates, graph=None)`."""
        return candidates

    def why_not(self, node: Node) -> str | None:
        """The reason why `select` refuses the node, in words for the report, or None."""
        return None

    def reset(self) -> None:
        """Called before a second growth from the same seed (the first closed a cycle). Drop all state since `select`."""

    def op_names(self) -> Iterable[str]:
        """The names of ops that it selects, if any: the report notes those that no op has."""
        return ()

    def labeler(self) -> Labeler | None:
        """The labels, if every answer is "both nodes have the same label": then no method has to be called per edge."""
        return None

    def __or__(self, other: SubgraphSelector) -> SubgraphSelector:
        return EitherSelector(self, other) if isinstance(other, SubgraphSelector) else NotImplemented

    def __and__(self, other: SubgraphSelector) -> SubgraphSelector:
        return BothSelector(self, other) if isinstance(other, SubgraphSelector) else NotImplemented

    def __invert__(self) -> SubgraphSelector:
        return InverseSelector(self)


class ContainOpSelector(SubgraphSelector):
    """Selects nodes of certain ops, nodes that satisfy a predicate, or (no argument) nodes whose affinity equals the seed's.

    A plain op name means ONNX's own op; one of another domain is written "domain::Op".

    >>> ContainOpSelector({"Conv", "Relu", "com.microsoft::Gelu"})
    ContainOpSelector({'Conv', 'Relu', 'com.microsoft::Gelu'})
    """

    stateless = True

    def __init_subclass__(cls, **keywords: object) -> None:
        """Makes subclasses that override an answer stateful, unless they set `stateless = True`."""
        super().__init_subclass__(**keywords)
        if "stateless" not in cls.__dict__ and not {*QUESTIONS, "reset"}.isdisjoint(cls.__dict__):
            cls.stateless = False

    def __init__(self, ops: Iterable[str] | Callable[[Node], bool] | None = None) -> None:
        if isinstance(ops, str) or not (ops is None or callable(ops) or isinstance(ops, Iterable)):
            raise PartitaError(
                f"{ops!r} is not a set of op names",
                where="ContainOpSelector",
                remedy=f"Write ContainOpSelector({{{ops!r}}})" if isinstance(ops, str) else "Give names, a predicate or nothing",
            )
        self.predicate: Callable[[Node], bool] | None = ops if callable(ops) else None
        """The predicate on nodes, if given."""
        self.ops: frozenset[tuple[str, str]] | None = None
        """The (domain, op) pairs, if op names were given."""
        if ops is not None and not callable(ops):
            self.ops = frozenset(domain_and_op(name) for name in ops)

    def op_names(self) -> Iterable[str]:
        return () if self.ops is None else sorted(f"{domain}::{op}" if domain else op for domain, op in self.ops)

    @property
    def by_affinity(self) -> bool:
        """True if it selects by the seed's affinity."""
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


class Combined(SubgraphSelector):
    """A selector that combines others: `a | b`, `a & b`, `~a`.

    Every call goes to every part, in order, even if the first answer decides. Therefore each part that keeps
    state gets all calls that it would get alone."""

    def __init__(self, *parts: SubgraphSelector) -> None:
        self.parts = parts
        """The selectors combined."""
        self.stateless = all(part.stateless for part in parts)

    def reset(self) -> None:
        for part in self.parts:
            part.reset()

    def op_names(self) -> Iterable[str]:
        return dict.fromkeys(name for part in self.parts for name in part.op_names())

    def _labelers(self) -> list[Labeler] | None:
        """The labelers of the parts; None unless each part has one."""
        labelers = [labeler for part in self.parts if (labeler := part.labeler()) is not None]
        return labelers if len(labelers) == len(self.parts) else None

    @property
    def by_affinity(self) -> bool:
        """True if a part groups by affinity, so that there are several labels."""
        return any(isinstance(part, (Combined, ContainOpSelector)) and part.by_affinity for part in self.parts)


class _BinarySelector(Combined):
    """A selector that combines the answers of all parts by one function. `filter` keeps the candidates by it likewise."""

    agree: ClassVar[staticmethod[[Iterable[bool]], bool]]
    """The function: any or all."""
    operator: ClassVar[str]
    """The operator that makes such a selector."""

    def select(self, node: Node) -> bool:
        return self.agree([part.select(node) for part in self.parts])

    def select_input(self, cur: Node, new: Node) -> bool:
        return self.agree([part.select_input(cur, new) for part in self.parts])

    def select_output(self, cur: Node, new: Node) -> bool:
        return self.agree([part.select_output(cur, new) for part in self.parts])

    def filter(self, candidates: list[Node], graph: Graph | None = None) -> list[Node]:
        kept = [set(map(id, call_filter(part.filter, graph, list(candidates)))) for part in self.parts]
        return [node for node in candidates if self.agree(id(node) in of_part for of_part in kept)]

    def __repr__(self) -> str:
        return f"({f' {self.operator} '.join(map(repr, self.parts))})"


class EitherSelector(_BinarySelector):
    """`a | b`: accepts a node or edge if at least one of the two does. `filter` keeps the candidates that either keeps."""

    agree, operator = staticmethod(any), "|"

    def labeler(self) -> Labeler | None:
        labelers = self._labelers()
        if labelers is None or self.by_affinity:
            return None  # the union of two equivalences is none
        return lambda node: True if any([labeler(node) for labeler in labelers]) else None

    def why_not(self, node: Node) -> str | None:
        reasons = [reason for part in self.parts if (reason := part.why_not(node)) is not None]
        return "; ".join(reasons) if len(reasons) == len(self.parts) else None


class BothSelector(_BinarySelector):
    """`a & b`: accepts a node or edge if both do. `filter` keeps the candidates that both keep."""

    agree, operator = staticmethod(all), "&"

    def labeler(self) -> Labeler | None:
        labelers = self._labelers()
        return None if labelers is None else lambda node: _joint([labeler(node) for labeler in labelers])

    def why_not(self, node: Node) -> str | None:
        return next((reason for part in self.parts if (reason := part.why_not(node)) is not None), None)


class InverseSelector(Combined):
    """`~a`: accepts a node or edge if `a` does not. `filter` keeps everything."""

    def select(self, node: Node) -> bool:
        return not self.parts[0].select(node)

    def select_input(self, cur: Node, new: Node) -> bool:
        return not self.parts[0].select_input(cur, new)

    def select_output(self, cur: Node, new: Node) -> bool:
        return not self.parts[0].select_output(cur, new)

    def labeler(self) -> Labeler | None:
        labelers = self._labelers()
        if labelers is None or self.by_affinity:
            return None
        return lambda node: True if labelers[0](node) is None else None

    def __repr__(self) -> str:
        return f"~{self.parts[0]!r}"


def _joint(labels: list[Hashable | None]) -> Hashable | None:
    """One label for several: those other than True."""
    if None in labels:
        return None
    rest = [label for label in labels if label is not True]
    return True if not rest else rest[0] if len(rest) == 1 else tuple(rest)


def texts_in(selector: SubgraphSelector) -> list[str]:
    """The texts, sorted, in the code of the selector's answers, in collections that this code names, and in its attributes.

    Code that calls `mxnet_ops` has MXNet's names in it rightly, and is left out."""
    functions = [getattr(type(selector), name) for name in QUESTIONS]
    functions += [getattr(selector, "predicate", None)]
    plain = [function for function in functions if inspect.isfunction(function) and "mxnet_ops" not in function.__code__.co_names]
    codes = [(function.__code__, function.__globals__) for function in plain]
    values: list[object] = [*vars(type(selector)).values(), *vars(selector).values()]
    for code, names in codes:
        values += [*code.co_consts, *(names.get(name) for name in code.co_names)]
    collections = [value for value in values if isinstance(value, (tuple, list, set, frozenset)) and len(value) <= MOST_TEXTS]
    texts = [*(value for code, _ in codes for value in code.co_consts), *(item for one in collections for item in one)]
    return sorted({text for text in texts if type(text) is str})


def domain_and_op(name: str) -> tuple[str, str]:
    """"domain::Op" as a pair; a plain name is ONNX's own."""
    if not isinstance(name, str) or not name:
        raise PartitaError(f"{name!r} is not an op name", remedy='Op names are strings such as "Conv" or "com.microsoft::Gelu"')
    domain, _, op = name.rpartition("::")
    return ("" if domain == "ai.onnx" else domain, op)


BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Filter = Callable[..., Iterable[Node]]
"""A selector's `filter`: a function of the candidates, or of the graph and the candidates."""


def takes(function: Callable[..., Any], name: str) -> bool:
    """True if the function has a parameter of this name. (`**rest` does not count: it may be passed on to another function.)"""
    return any(p.name == name and p.kind in BY_NAME for p in _parameters(function))


def call_filter(function: Filter, graph: Graph | None, candidates: list[Node]) -> Iterable[Node]:
    """Calls a `filter`. One that requires two arguments gets the graph first, as in MXNet; one with a further parameter `graph`
    gets it by name."""
    parameters = _parameters(function)
    needed = [p.name for p in parameters if p.kind in BY_POSITION and p.default is p.empty]
    if len(needed) == 2 and needed[1] != "graph":
        return function(graph, candidates)
    if takes(function, "graph"):
        return function(candidates, graph=graph)
    return function(candidates)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a C function without a signature
        return []
