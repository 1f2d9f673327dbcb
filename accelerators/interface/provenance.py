"""Maps each original node to the nodes of a transformed graph that it became, and carries their answers back to it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from partita.graph.build import FUSED as FUSED
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops

Answer = bool | str
"""True, or the reason why not."""

Answers = dict[Node, Answer]
"""The answer for each op."""


def fused_names(node: Node) -> list[str]:
    """The names of the original nodes that this one replaces."""
    listed = node.metadata.get(FUSED, "").splitlines()
    bodies = () if node.subgraph is None else graphs_in(node.subgraph)
    return listed + [inner.name for body in bodies for inner in body.nodes if inner.is_op]


def worse(a: Answer, b: Answer) -> Answer:
    """The first refusal of two answers, or True."""
    return a if a is not True else b


def lost_calls(old: Graph, new: Graph) -> list[Node]:
    """The calls of the old graph that the new one neither contains nor lists as fused: they were inlined."""
    calls = [node for node in old.nodes if node.is_call]
    if not calls:
        return []
    known = {name for node in new.nodes if node.is_op for name in (node.name, *node.metadata.get(FUSED, "").splitlines())}
    return [node for node in calls if node.name not in known]


def carried_back(old: Graph, new: Graph, answers: Answers, trusted: bool) -> Answers:
    """Carries the answers about the new graph's ops back to the ops of the old graph. Linear.

    An old node has become each new one that has its name, that lists it under `partita.fused`, or that computes its value; it
    is supported if all of these are, and so is what only they read. One that became nothing takes the answers of its readers,
    if each of its values exists elsewhere, or is read only by nodes that became nothing too. Any other node is unaccounted
    for and therefore refused."""
    return _Trace(old, new, answers, trusted).run()


class _Trace:
    def __init__(self, old: Graph, new: Graph, answers: Answers, trusted: bool) -> None:
        self.trusted = trusted
        """True if every chain that vanished is known to be computed, or to be part of another op."""
        self.old = old
        self.new = new
        self.answers = answers
        self.parts: dict[Node, dict[Node, None]] = {node: {} for node in old.nodes if node.is_op}
        """For each old node, the new nodes that it has become."""
        self.owned: dict[Node, list[Node]] = {}
        """For each new node, the old nodes that have become it."""
        self.fused: set[Node] = set()
        """Old nodes that a new one lists: the values between them may no longer exist."""
        self.opened: set[Node] = set()
        """Old nodes with bodies, whose bodies' nodes are in the new graph."""
        self.stands: dict[NodeEntry, NodeEntry] = {}
        """For each value of an old op, its equivalent value in the new graph."""
        self.handed: dict[Node, Node] = {}
        """Old nodes whose value was replaced by another old node's, and that node."""
        self.read = {entry for node in old.nodes for entry in node.reads} | set(old.outputs)
        self._makers = {entry.name: entry for node in old.nodes for entry in node.outputs if entry.name}
        self._waiting: list[tuple[NodeEntry, NodeEntry]] = []

    def run(self) -> Answers:
        self._match_names()
        self._match_opened()
        self._match_values()
        self._match_sources()
        totals = self._totals()
        answers: Answers = {}
        for node, parts in self.parts.items():
            if parts:
                answer: Answer = True
                for part in parts:
                    answer = worse(answer, self._of_part(node, part, totals[part]))
                answers[node] = answer
        lost = set() if self.trusted else self._lost()
        for node in reversed(self.old.nodes):
            if node.is_op and node not in answers:
                answers[node] = self._vanished(node, answers) if node not in lost else _LOST
        return answers

    def _lost(self) -> set[Node]:
        """Nodes that became nothing, in chains that change values and that no neighbouring op can have absorbed. Linear."""
        lost: set[Node] = set()
        seen: set[Node] = set()
        for node, parts in self.parts.items():
            if parts or node in seen:
                continue
            chain = self._chain(node)
            seen.update(chain)
            kept = [each for each in chain if not hands_on(each) and not self._is_merged(each)]
            if kept and self._is_needed(chain) and not any(map(self._is_changed, self._beside(chain))):
                lost.update(kept)
        return lost

    def _chain(self, node: Node) -> list[Node]:
        """The nodes that have become nothing and are connected with this one."""
        chain, waiting = {node: None}, [node]
        while waiting:
            for other in self._around(waiting.pop()):
                if other not in chain and other in self.parts and not self.parts[other]:
                    chain[other] = None
                    waiting.append(other)
        return list(chain)

    def _around(self, node: Node) -> Iterator[Node]:
        """The producers and readers of the node."""
        yield from (entry.node for entry in node.reads if entry.node.is_op)
        index = self.old.index
        yield from (index.nodes[i] for entry in node.outputs[:1] for i in index.consumers[index.number[entry.node]])

    def _beside(self, chain: Sequence[Node]) -> set[Node]:
        inside = set(chain)
        return {other for node in chain for other in self._around(node) if other not in inside}

    def _is_needed(self, chain: Sequence[Node]) -> bool:
        """True if a value of the chain is read outside, or returned, and was not replaced by a constant."""
        inside, returned = set(chain), set(self.old.outputs)
        for node in chain:
            for entry in node.outputs:
                stand = self.stands.get(entry)
                if stand is not None and stand.node.value is not None:
                    continue
                if entry in returned or any(reader not in inside for reader in self._readers(entry)):
                    return True
        return False

    def _is_merged(self, node: Node) -> bool:
        """True if its value was replaced by that of an equal node."""
        twin = self.handed.get(node)
        if twin is None or not twin.is_op or not _alike(twin, node) or not _equal_attributes(twin, node):
            return False
        return all(a == b or (a is not None and b is not None and self._is_same(a, b)) for a, b in zip(twin.inputs, node.inputs))

    def _is_same(self, a: NodeEntry, b: NodeEntry) -> bool:
        """True if both have the same equivalent in the new graph, or are the same array."""
        first, second = self.stands.get(a), self.stands.get(b)
        return (first is not None and first == second) or (a.node.value is not None and a.node.value is b.node.value)

    def _is_changed(self, node: Node) -> bool:
        """True if it became another op, or got other attributes or constants, so that it may do more than before."""
        return any(
            not _alike(node, part) or not _equal_attributes(node, part) or _reads_others(node, part)
            for part in self.parts[node]
        ) or node in self.opened or node in self.fused

    def _own(self, node: Node, part: Node) -> None:
        if part not in self.parts[node]:
            self.parts[node][part] = None
            self.owned.setdefault(part, []).append(node)

    def _match_names(self) -> None:
        by_name = {node.name: node for node in self.parts}
        for part in self.new.nodes:
            if not part.is_op:
                continue
            same = by_name.get(part.name)
            if same is not None:
                self._own(same, part)
            if same is part or (not part.metadata and part.subgraph is None):
                continue
            before = set() if same is None else set(fused_names(same))
            for name in fused_names(part):
                node = by_name.get(name)
                if node is not None and name not in before:
                    self._own(node, part)
                    self.fused.add(node)

    def _match_opened(self) -> None:
        """Matches an If whose condition is constant with the nodes of its branch."""
        there = {part.name: part for part in self.new.nodes if part.is_op}
        for node in self.parts:
            if node.name not in there and node.bodies and not node.is_call:
                inside = (inner.name for _, body in node.bodies for inner in body.nodes if inner.is_op)
                for name in inside:
                    if name in there:
                        self._own(node, there[name])
                        self.opened.add(node)

    def _match_values(self) -> None:
        """Matches values by name, as outputs of the graph, or as inputs of a node that still exists."""
        values = {entry.name: entry for node in self.new.nodes for entry in node.outputs if entry.name}
        for node, parts in list(self.parts.items()):
            for entry in node.outputs:
                if entry.name in values:
                    self._pair(entry, values[entry.name])
            for part in list(parts):
                if part.name == node.name and _alike(node, part):
                    self._pair_inputs(node, part)
        for entry, new in zip(self.old.outputs, self.new.outputs, strict=False):
            self._pair(entry, new)
        while self._waiting:
            self._pair(*self._waiting.pop())

    def _match_sources(self) -> None:
        """Matches each unmatched node with a new one that computes the same from the same values, if there is one."""
        if all(self.parts.values()):
            return
        sources = {entry.name: entry for node in self.new.nodes if not node.is_op for entry in node.outputs}
        same = {_key(n, n.inputs): n for n in self.new.nodes if n.is_op and not n.bodies and n not in self.owned}
        for node, parts in self.parts.items():
            if parts or node.bodies:
                continue
            read = [
                None if entry is None else self.stands.get(entry) if entry.node.is_op else sources.get(entry.name)
                for entry in node.inputs
            ]
            first = read[0] if read else None
            if node.op == "Identity" and not node.domain and first is not None:
                self.stands[node[0]] = first
                continue
            twin = same.get(_key(node, read))
            if twin is not None and None not in read and _equal_attributes(node, twin):
                for entry, new in zip(node.outputs, twin.outputs, strict=False):
                    self._pair(entry, new)

    def _pair(self, old: NodeEntry, new: NodeEntry) -> None:
        """Records that the new value is equivalent to the old one."""
        if not old.node.is_op or old.node.is_call:
            return
        first = self.stands.setdefault(old, new) is new
        if not new.node.is_op:
            return
        maker = self._makers.get(new.name)
        if maker is not None and maker.name != old.name:
            self.handed.setdefault(old.node, maker.node)
            return
        known = bool(self.parts[old.node])
        self._own(old.node, new.node)
        if first and not known and _alike(old.node, new.node):
            self._pair_inputs(old.node, new.node)

    def _pair_inputs(self, old: Node, new: Node) -> None:
        if old is new:
            return
        captures = zip(old.captures, new.captures, strict=True) if len(old.captures) == len(new.captures) else ()
        pairs = [*zip(old.inputs, new.inputs, strict=True), *captures]
        self._waiting += [(a, b) for a, b in pairs if a is not None and b is not None and a.node.is_op]

    def _totals(self) -> Answers:
        """For each new node its answer, combined with the answers of unmatched new nodes.

        Such a node counts as a part of the nodes that read it, or of those that it reads if their value is missing or no
        matched node reads it."""
        totals: Answers = {}
        for part in self.new.nodes:
            if part.is_op:
                total = self.answers[part]
                for entry in part.reads:
                    if entry.node.is_op and entry.node not in self.owned:
                        total = worse(total, _next_to(entry.node, totals[entry.node]))
                totals[part] = total
        if len(self.owned) == len(totals):
            return totals
        index = self.new.index
        below: dict[Node, tuple[Answer, bool]] = {}
        for i in reversed(range(len(index))):
            part = index.nodes[i]
            if not part.is_op:
                continue
            answer, ends = self.answers[part] if part not in self.owned else True, True
            for consumer in index.consumers[i]:
                reader = index.nodes[consumer]
                if reader in self.owned:
                    ends = False
                else:
                    below_it, stops = below[reader]
                    ends = ends and stops
                    if part not in self.owned or stops or self._is_open(part):
                        answer = worse(answer, _next_to(reader, below_it))
            if part in self.owned:
                totals[part] = worse(totals[part], answer)
            below[part] = answer, ends
        return totals

    def _is_open(self, part: Node) -> bool:
        """True if the value of one of its old nodes has no equivalent."""
        return any(
            entry in self.read and entry not in self.stands
            for node in self.owned[part]
            if node not in self.fused
            for entry in node.outputs
        )

    def _of_part(self, node: Node, part: Node, answer: Answer) -> Answer:
        """The answer about a part, naming the part."""
        if answer is True or part.name == node.name or part.is_call:
            return answer
        return _part_of(part, answer)

    def _vanished(self, node: Node, answers: Answers) -> Answer:
        """The answer about a node that became nothing."""
        if self._is_merged(node):
            return answers.get(self.handed[node], True)  # two equal nodes became one
        answer: Answer = True
        for entry in node.outputs:
            for reader in self._readers(entry) if entry in self.read else ():
                if entry not in self.stands and not self._has_done_with(reader, entry):
                    return f"{_NOTHING}, and no value {entry.name!r}"
                answer = worse(answer, _as(reader, answers[reader]))
        return answer

    def _has_done_with(self, reader: Node, entry: NodeEntry) -> bool:
        """True if the reader does not need the missing value any more, other than by having absorbed the op that made it."""
        if not self.parts[reader] or reader in self.opened:
            return True
        in_body_only = entry in reader.captures and entry not in reader.inputs
        return in_body_only and any(part.name == reader.name and part.op == reader.op for part in self.parts[reader])

    def _readers(self, entry: NodeEntry) -> Iterator[Node]:
        index = self.old.index
        for i in index.consumers[index.number[entry.node]]:
            reader = index.nodes[i]
            if entry in reader.reads:
                yield reader


def _part_of(part: Node, answer: Answer) -> Answer:
    """The refusal of a new node that an old one became, naming it; once."""
    if answer is True or str(answer).startswith(_MAKES):
        return answer
    return f"{_MAKES}{part.name!r} ({part.op}) of it: {answer}"


def _next_to(part: Node, answer: Answer) -> Answer:
    """The refusal of a new node without a known old one, naming it; once."""
    if answer is True or str(answer).startswith(_MAKES):
        return answer
    return f"{_MAKES}{part.name!r} ({part.op}) next to it without naming its origin: {answer}"


def hands_on(node: Node) -> bool:
    """True for an op that changes no element: it moves values, changes their type, or computes with a neutral constant."""
    if node.domain:
        return False
    first = node.inputs[0] if node.inputs else None
    if node.op in _MOVES or (node.op in ops("variadic") and len(node.inputs) == 1):
        return True
    if node.op in ops("copying") or node.op == "Pad":  # Where the shape stays, it is most likely an identity.
        return first is not None and first.type is not None and first.type == node[0].type
    neutral = _NEUTRAL.get(node.op or "")
    constants = [entry.node.value for entry in node.inputs[1 if node.op in ("Sub", "Div", "Pow") else 0 :] if entry is not None]
    return neutral is not None and any(value is not None and bool((value == neutral).all()) for value in constants)


_MOVES = ops("reshape", "forwarding", "casting", "shuffle") | {"Transpose"}
"""Ops whose results hold each element of their input exactly once."""

_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "Pow": 1}
"""The constant with which each of these changes nothing."""


def _reads_others(old: Node, new: Node) -> bool:
    """True if the new node reads other constants than the old one."""
    values = (tuple(None if entry is None else entry.node.value for entry in pair) for pair in zip(old.inputs, new.inputs))
    return any(before is not after for before, after in values)


_LOST = (
    "its transform leaves nothing of it: it changes values, and no op beside it has become another that could have taken it in"
)

_MAKES = "its transform makes "

_NOTHING = "its transform leaves nothing of it: no node of its name, none that lists it as fused"


def _as(reader: Node, answer: Answer) -> Answer:
    """The refusal passed from the reader of a node that the transform leaves out."""
    if answer is True or str(answer).startswith(_WITH):
        return answer
    return f"{_WITH}{reader.name!r} ({reader.op}), which reads it: {answer}"


_WITH = "its transform leaves it out, and refused is "


def _key(node: Node, inputs: Sequence[NodeEntry | None]) -> Hashable:
    """The op and its inputs, as a key."""
    return node.op, node.domain, tuple(inputs), len(node.output_names)


def _equal_attributes(a: Node, b: Node) -> bool:
    """True if both have equal attributes. Arrays are not compared and count as different."""
    plain = (bool, int, float, str, tuple, list)
    return a.attrs is b.attrs or (
        all(isinstance(value, plain) for value in a.attrs.values()) and dict(a.attrs) == dict(b.attrs)
    )


def _alike(a: Node, b: Node) -> bool:
    """True for the same op with the same number of inputs."""
    return (a.op, a.domain, len(a.inputs)) == (b.op, b.domain, len(b.inputs))
