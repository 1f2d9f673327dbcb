"""One property's choice of groups of op numbers, by its selector or pattern."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import attrs

from partita.graph.errors import did_you_mean
from partita.graph.formatting import shortened
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.schemas import op_names
from partita.partition import growth
from partita.partition.errors import PartitionError, raised
from partita.partition.evidence import GIVEN, Evidence, EvidenceOfWalk
from partita.partition.growth.labels import Accept
from partita.partition.hooks import Chooser, Hooks
from partita.partition.matcher import Matcher
from partita.partition.op_index import OpIndex, join_at_constants
from partita.partition.options import GivenGroups, Growth, OwnGrowth
from partita.partition.pattern import Pattern
from partita.partition.selector import Combined, ContainOpSelector, SubgraphSelector, call_filter, domain_and_op, texts_in

Groups = list[list[int]]


@attrs.frozen(slots=True)
class Watchers:
    """Observers of the growth of subgraphs, step by step."""

    walk: growth.WalkObserver | None = None
    """Observer of growth "walk"."""
    seed: growth.SeedObserver | None = None
    """Observer of growth "seed"."""


NOBODY = Watchers()


def choose_groups(
    hooks: Hooks,
    index: OpIndex,
    fixed: Groups,
    how: Growth | None,
    watchers: Watchers = NOBODY,
    given: GivenGroups | None = None,
) -> tuple[Groups, Evidence]:
    """The groups that the property chooses outside the `fixed` ones, or those `given`, with the evidence."""
    if given is not None:
        return _numbered(given, index, index.offered, "option groups"), Evidence(hooks.name, GIVEN, "the option groups")
    check_growth(how)
    selector = hooks.new_selector()
    groups, evidence = _chosen(selector, hooks, index, fixed, how, watchers)
    evidence.notes += hooks.call("op_names", None, lambda: list(notes_on(selector, index, groups)))
    return groups, evidence


def _chosen(
    selector: Chooser, hooks: Hooks, index: OpIndex, fixed: Groups, how: Growth | None, watchers: Watchers
) -> tuple[Groups, Evidence]:
    free = list(index.offered)
    for group in fixed:
        for v in group:
            free[v] = False
    if isinstance(selector, Pattern):
        matched, evidence = _matched(selector, hooks, index, fixed, free)
        if callable(how):
            evidence.notes.append(f"Growth {getattr(how, '__name__', 'given')} was not asked: a pattern finds its matches itself")
        return matched, evidence
    labels = _labels(selector, hooks, index, free)
    how = how or ("largest" if selector.stateless else "walk")
    if how == "walk":
        return _walked(selector, hooks, index, fixed, free, labels, watchers.walk)
    groups, evidence = _grown(selector, hooks, index, fixed, labels, how, free, watchers.seed)
    if not selector.stateless:
        name = how if isinstance(how, str) else getattr(how, "__name__", "given")
        evidence.notes.append(f"Growth {name} took {type(selector).__name__} for stateless, which it does not claim to be")
    return groups, evidence


def check_growth(how: object) -> None:
    """Raises for an unknown name."""
    if how is not None and not callable(how) and how not in growth.GROWTHS:
        hint = did_you_mean(str(how), growth.GROWTHS) or f"There are {', '.join(growth.GROWTHS)}; or give a function"
        raise PartitionError(f"there is no growth {how!r}", where="option growth", remedy=hint)


def is_connected(how: str) -> bool:
    """True if each group that this growth makes is connected; False for those of a pattern, and for given ones."""
    return how in growth.GROWTHS and growth.GROWTHS[how].connected


def _matched(pattern: Pattern, hooks: Hooks, index: OpIndex, fixed: Groups, free: list[bool]) -> tuple[Groups, Evidence]:
    def ask(predicate: Callable[[Node], bool], node: Node) -> bool:
        return hooks.ask("predicate of the pattern", node, predicate, node)

    matcher = Matcher(index, pattern, free, fixed, ask)
    groups = matcher.run()
    return groups, Evidence(hooks.name, "pattern", repr(pattern), missed=matcher.missed, selector=pattern)


def _labels(selector: SubgraphSelector, hooks: Hooks, index: OpIndex, free: list[bool]) -> list[Hashable | None] | None:
    """The labels of free nodes, if the selector has labels; else None."""
    labeler = None if has_filter(selector) else selector.labeler()
    if labeler is None:
        return None
    labels: list[Hashable | None] = [None] * len(index)
    for v, node in enumerate(index.nodes):
        if free[v]:
            try:
                labels[v] = labeler(node)
            except Exception as error:
                raise hooks.error("select", node, raised(error)) from error
    return labels


def _grown(
    selector: SubgraphSelector, hooks: Hooks, index: OpIndex, fixed: Groups, labels: list[Hashable | None] | None,
    how: Growth, free: list[bool], observer: growth.SeedObserver | None,
) -> tuple[Groups, Evidence]:
    """The groups of a stateless selector, by the given growth."""
    nodes = index.nodes
    evidence = Evidence(hooks.name, how if isinstance(how, str) else GIVEN, repr(selector), selector=selector)
    accept = None
    if labels is None:
        labels = [
            (True if hooks.ask("select", node, selector.select, node) else None) if free[v] else None
            for v, node in enumerate(nodes)
        ]
        refused = evidence.refused

        def accept(u: int, v: int) -> bool:
            if not hooks.ask("select_output", nodes[v], selector.select_output, nodes[u], nodes[v]):
                refused[u, v] = "select_output"
            elif not hooks.ask("select_input", nodes[u], selector.select_input, nodes[v], nodes[u]):
                refused[u, v] = "select_input"
            else:
                return True
            return False

    evidence.labels = labels
    evidence.by_affinity = isinstance(selector, (ContainOpSelector, Combined)) and selector.by_affinity
    number: dict[Hashable, int] = {}
    color = [None if label is None else number.setdefault(label, len(number)) for label in labels]
    if not isinstance(how, str):
        groups = _grown_by(how, index, color, _over_control(index, accept, GIVEN))
    elif how == "seed":
        groups, evidence.repairs = growth.seed(index.preds, color, accept, fixed, observer, index.control)
    else:
        groups = growth.GROWTHS[how].grow(index.preds, color, _over_control(index, accept, how), fixed)
    if evidence.by_affinity and accept is None and isinstance(how, str):
        groups = join_at_constants(index, groups, labels, fixed)
    if has_filter(selector):
        groups = _filtered(selector, hooks, index, groups, fixed, evidence)
    return groups, evidence


def _grown_by(how: OwnGrowth, index: OpIndex, color: list[int | None], accept: Accept | None) -> Groups:
    """The groups of the user's own growth."""

    def accepts(producer: Node, consumer: Node) -> bool:
        u, v = (index.number.get(node, -1) for node in (producer, consumer))
        if min(u, v) < 0 or u not in index.preds[v]:
            return False
        return color[u] is not None and color[u] == color[v] and (accept is None or accept(u, v))

    try:
        groups = how([node for v, node in enumerate(index.nodes) if color[v] is not None], accepts)
    except PartitionError:
        raise
    except Exception as error:
        raise PartitionError(raised(error), where=OWN, remedy="It takes the nodes and a function of two nodes") from error
    return _numbered(groups, index, [c is not None for c in color], OWN)


OWN = "option growth, a function"


def _numbered(groups: GivenGroups, index: OpIndex, free: Sequence[bool], where: str) -> Groups:
    """The groups named by a user, as node numbers; each node has to be `free`, and in at most one of them."""
    remedy = "Give groups of nodes, or of their names"
    by_name = {node.name: v for v, node in enumerate(index.nodes)}
    numbered: Groups = []
    taken: set[int] = set()
    try:
        if isinstance(groups, (str, Mapping)):
            raise TypeError
        listed = [[group] if isinstance(group, str) else list(group) for group in groups]
    except TypeError:
        raise PartitionError(f"{groups!r:.80} is not a list of groups", where=where, remedy=remedy) from None
    for group in listed:
        members = []
        for one in group:
            v = by_name.get(one, -1) if isinstance(one, str) else index.number.get(one, -1) if isinstance(one, Node) else -1
            name = getattr(one, "name", one)
            if v < 0:
                is_there = isinstance(name, str) and name in by_name
                hint = did_you_mean(name, by_name) if isinstance(name, str) and not is_there else None
                cause = f"{name!r:.80} is not an op of the graph"
                if is_there:
                    cause += ": it is a node of another one" if isinstance(one, Node) else ": it is a value"
                raise PartitionError(cause, where=where, remedy=hint or remedy)
            if not free[v]:
                cause = f"{name!r} may not be in a subgraph: the selector refused it, it is in one already, or no output needs it"
                raise PartitionError(cause, where=where, remedy="Leave it out")
            if v in taken:
                raise PartitionError(f"{name!r} is in two groups, or twice in one", where=where, remedy="Name it once")
            taken.add(v)
            members.append(v)
        if members:
            numbered.append(sorted(members))
    return numbered


def _over_control(index: OpIndex, accept: Accept | None, how: str) -> Accept | None:
    """`accept`, restricted to edges along which values flow.

    A subgraph does not grow over a control dependency; both ends may be in one that need not be connected."""
    control = index.control
    if not control:
        return accept
    together = not is_connected(how)
    return lambda u, v: together if (u, v) in control else accept is None or accept(u, v)


def _filtered(
    selector: SubgraphSelector, hooks: Hooks, index: OpIndex, groups: Groups, fixed: Groups, evidence: Evidence
) -> Groups:
    """The nodes of each group that `filter` keeps, split again if they are disconnected or would close a cycle."""
    color: list[int | None] = [None] * len(index)
    for k, group in enumerate(groups):
        kept = set(map(id, filtered(selector, hooks, index.graph, [index.nodes[v] for v in group])))
        for v in group:
            if id(index.nodes[v]) in kept:
                color[v] = k
            else:
                evidence.filtered[v] = group[0]
    if not evidence.filtered:
        return groups
    split = growth.waves if evidence.growth in ("waves", GIVEN) else growth.largest
    accept = _over_control(index, lambda u, v: (u, v) not in evidence.refused, evidence.growth)
    return split(index.preds, color, accept, fixed)


def filtered(selector: SubgraphSelector, hooks: Hooks, graph: Graph, candidates: list[Node]) -> list[Node]:
    """The candidates that `filter` keeps; raises unless they are distinct candidates."""
    first = candidates[0]
    kept = hooks.call_for_list("filter", first, "a list of nodes", call_filter, selector.filter, graph, list(candidates))
    seen: set[int] = set()
    known = set(map(id, candidates))
    for node in kept:
        name = getattr(node, "name", node)
        if id(node) not in known:
            raise hooks.error("filter", first, f"it returned {name!r}, which is none of the candidates", FILTER)
        if id(node) in seen:
            raise hooks.error("filter", first, f"it returned {name!r} twice", FILTER)
        seen.add(id(node))
    return kept


FILTER = "filter(candidates) returns those of the candidates that are to stay, each once"


def has_filter(selector: SubgraphSelector) -> bool:
    """True if the selector overrides `filter`."""
    own = type(selector).filter is not SubgraphSelector.filter
    return own and not (isinstance(selector, Combined) and not any(map(has_filter, selector.parts)))


def _walked(
    selector: SubgraphSelector, hooks: Hooks, index: OpIndex, fixed: Groups, free: list[bool],
    labels: list[Hashable | None] | None, observer: growth.WalkObserver | None,
) -> tuple[Groups, Evidence]:
    evidence = Evidence(hooks.name, "walk", repr(selector), selector=selector)
    if labels is not None:
        evidence.labels = labels
        evidence.by_affinity = isinstance(selector, (ContainOpSelector, Combined)) and selector.by_affinity
        asked = LabelWalk(labels)
        usable = [label is not None for label in labels]
        groups = growth.walk(index.preds, usable, lambda: asked, fixed, observer=observer, control=index.control)
        if evidence.by_affinity:
            groups = join_at_constants(index, groups, labels, fixed)
        return groups, evidence
    maker = WalkSelectors(selector, hooks, index, evidence)
    writer: growth.WalkObserver = EvidenceOfWalk(evidence, maker.latest)
    if observer is not None:
        writer = growth.BothObservers(writer, observer)
    groups = growth.walk(index.preds, free, maker, fixed, observer=writer, control=index.control)
    return groups, evidence


class LabelWalk:
    """The walk's selector if all its answers are "same label"."""

    __slots__ = ("_labels",)

    def __init__(self, labels: Sequence[Hashable | None]) -> None:
        self._labels = labels

    def select(self, node: int) -> bool:
        return self._labels[node] is not None

    def select_input(self, cur: int, new: int) -> bool:
        return self._labels[cur] == self._labels[new]

    select_output = select_input

    def filter(self, candidates: list[int]) -> list[int]:
        return candidates

    def reset(self) -> None:
        """No state to reset."""


class WalkSelectors:
    """Makes the walk's selectors: a new one of the user's per seed."""

    def __init__(self, first: SubgraphSelector, hooks: Hooks, index: OpIndex, evidence: Evidence) -> None:
        self._first: SubgraphSelector | None = first
        self.hooks = hooks
        self.nodes = index.nodes
        self.number = index.number
        self.graph = index.graph
        self.unselected = evidence.unselected
        self._latest = first

    def latest(self) -> SubgraphSelector:
        """The selector of the current growth."""
        return self._latest

    def __call__(self) -> AskedSelector:
        selector, self._first = self._first, None
        fresh = self.hooks.new_selector() if selector is None else selector
        if not isinstance(fresh, SubgraphSelector):
            raise self.hooks.error("create_subgraph_selector", None, "it returned a selector first, and then a Pattern")
        self._latest = fresh
        return AskedSelector(fresh, self)


class AskedSelector:
    """A user's selector for the walk: it takes node numbers, and checks every answer."""

    __slots__ = ("_hooks", "_maker", "_nodes", "_selector")

    def __init__(self, selector: SubgraphSelector, maker: WalkSelectors) -> None:
        self._selector = selector
        self._nodes = maker.nodes
        self._hooks = maker.hooks
        self._maker = maker

    def select(self, node: int) -> bool:
        offered = self._nodes[node]
        answer = self._hooks.ask("select", offered, self._selector.select, offered)
        if not answer:
            self._maker.unselected.add(node)
        return answer

    def select_input(self, cur: int, new: int) -> bool:
        nodes = self._nodes
        try:
            answer = self._selector.select_input(nodes[cur], nodes[new])
        except Exception as error:
            raise self._hooks.error("select_input", nodes[new], raised(error)) from error
        return answer if answer is True or answer is False else self._hooks.as_bool("select_input", nodes[new], answer)

    def select_output(self, cur: int, new: int) -> bool:
        nodes = self._nodes
        try:
            answer = self._selector.select_output(nodes[cur], nodes[new])
        except Exception as error:
            raise self._hooks.error("select_output", nodes[new], raised(error)) from error
        return answer if answer is True or answer is False else self._hooks.as_bool("select_output", nodes[new], answer)

    def filter(self, candidates: list[int]) -> list[int]:
        if not has_filter(self._selector):
            return candidates
        offered = [self._nodes[v] for v in candidates]
        return [self._maker.number[node] for node in filtered(self._selector, self._hooks, self._maker.graph, offered)]

    def reset(self) -> None:
        self._hooks.call("reset", None, self._selector.reset)


def notes_on(chooser: Chooser, index: OpIndex, groups: Sequence[Sequence[int]]) -> Iterator[str]:
    """The notes. Linear."""
    yield from _unknown_names(chooser, index)
    yield from _mxnet_names(chooser, bool(groups))
    if isinstance(chooser, SubgraphSelector) and follows_no_edge(chooser) and _touch(index, groups):
        kind = type(chooser).__name__
        yield (
            f"{kind} defines select alone, so each op that it takes is a subgraph of its own: the inherited select_input and "
            "select_output follow no edge"
        )


def _mxnet_names(chooser: Chooser, took_any: bool) -> Iterator[str]:
    """Notes on the names of MXNet's in a selector's own code. Names in lower case may be other words: they are noted if the
    selector took nothing."""
    for name in texts_in(chooser) if isinstance(chooser, SubgraphSelector) else ():
        if name.isidentifier() and not (took_any and name.islower()) and name not in op_names(""):
            hint = _mxnet_hint(name)
            if hint is not None:
                yield f"There is no op {name!r}, which {type(chooser).__name__} names. {hint}"


def follows_no_edge(selector: SubgraphSelector) -> bool:
    """True if both methods about edges are the inherited ones, which refuse."""
    kind = type(selector)
    return (
        kind.select_input is SubgraphSelector.select_input
        and kind.select_output is SubgraphSelector.select_output
        and not {"select_input", "select_output"} & vars(selector).keys()
    )


def _touch(index: OpIndex, groups: Sequence[Sequence[int]]) -> bool:
    """True if an edge leads from one group to another."""
    inside = {v for group in groups for v in group}
    return any(u in inside for v in inside for u in index.preds[v])


def _unknown_names(chooser: Chooser, index: OpIndex) -> Iterator[str]:
    missing = {domain_and_op(name): name for name in chooser.op_names()}
    for node in index.nodes:  # most graphs have all of these ops near the beginning
        if not missing:
            return
        missing.pop((node.domain, node.op or ""), None)
    for (domain, op), name in missing.items():
        known = op_names(domain) or {node.op for node in index.nodes if node.domain == domain and node.op}
        if known and op not in known:
            yield f"There is no op {name!r}, which {shortened(repr(chooser))} looks for. {_hint(op, domain, known)}"


def _mxnet_hint(name: str) -> str | None:
    """ONNX's names for an op of MXNet; None if it has no such op."""
    from partita.graph.readers.mxnet import meant_by  # start-up

    return meant_by(name)


def _hint(op: str, domain: str, known: frozenset[str] | set[str]) -> str:
    mxnet = None if domain else _mxnet_hint(op)
    if mxnet is not None:
        return mxnet
    return did_you_mean(op, known) or "Ops have ONNX's names; those of another domain are written domain::Op"
