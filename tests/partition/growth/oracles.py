"""Slow and obvious readings of what growth has to do. They share no code with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import networkx

Groups = list[list[int]]
Accept = Callable[[int, int], bool]


def quotient(preds: Sequence[Sequence[int]], groups: Sequence[Sequence[int]]) -> tuple[list[int], networkx.DiGraph]:
    """-> (the name of each node's group, the graph of the groups)."""
    owner = list(range(len(preds)))
    for group in groups:
        for v in group:
            owner[v] = min(group)
    graph = networkx.DiGraph()
    graph.add_nodes_from(owner)
    graph.add_edges_from((owner[u], owner[v]) for v, ps in enumerate(preds) for u in ps if owner[u] != owner[v])
    return owner, graph


def acyclic(preds: Sequence[Sequence[int]], groups: Sequence[Sequence[int]]) -> bool:
    return networkx.is_directed_acyclic_graph(quotient(preds, groups)[1])


def beyond(graph: networkx.DiGraph) -> dict[int, set[int]]:
    """What each node of the graph reaches, itself not included."""
    return {v: networkx.descendants(graph, v) for v in graph}


def neighbours(preds: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """-> (the producers of each node in input order, its consumers in topological order), without duplicates."""
    ins = [list(dict.fromkeys(ps)) for ps in preds]
    return ins, [[w for w in range(len(preds)) if v in ins[w]] for v in range(len(preds))]


def without(preds: Sequence[Sequence[int]], control: Collection[tuple[int, int]]) -> list[list[int]]:
    """The producers whose values are read."""
    return [[u for u in ps if (u, v) not in control] for v, ps in enumerate(preds)]


def parts(nodes: Sequence[int], linked: Callable[[int, int], bool]) -> Groups:
    """The connected components, each sorted, by first node."""
    graph = networkx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from((u, v) for u in nodes for v in nodes if u < v and linked(u, v))
    return sorted(sorted(part) for part in networkx.connected_components(graph))


def contractible(
    preds: Sequence[Sequence[int]], color: Sequence[int | None], accept: Accept, groups: Groups, fixed: Groups
) -> list[tuple[int, int]]:
    """The accepted edges between two groups that could be one without closing a cycle."""
    listed = []
    home = {v: group for group in groups for v in group}
    for v, ps in enumerate(preds):
        for u in ps:
            if u in home and v in home and home[u] is not home[v] and color[u] == color[v] and accept(u, v):
                others = [group for group in groups if group is not home[u] and group is not home[v]]
                if acyclic(preds, [*fixed, *others, home[u] + home[v]]):
                    listed.append((u, v))
    return listed


class LiteralWalk:
    """The walk, word for word, with a transitive closure for every question."""

    def __init__(self, preds, usable, make_selector, fixed=(), patience=8, control=frozenset()):
        self.preds, self.usable, self.make_selector = preds, usable, make_selector
        self.all_ins, self.all_outs = neighbours(preds)
        self.ins, self.outs = neighbours(without(preds, control))
        self.patience = patience * sum(map(len, self.all_ins))
        self.questions = 0
        self.fixed, self.groups = [list(group) for group in fixed], []
        self.passed_over = []
        self.look_again()

    def look_again(self):
        """After a group was made."""
        self.owner, graph = quotient(self.preds, self.fixed + self.groups)
        self.reach = beyond(graph)
        self.taken = {v for group in self.fixed + self.groups for v in group}

    def run(self) -> Groups:
        for seed in range(len(self.preds)):
            if self.usable[seed] and seed not in self.taken:
                selector = self.make_selector()
                if selector.select(seed):
                    self.grow_from(seed, selector)
        return self.groups

    def grow_from(self, seed, selector):
        dropped = set()
        while True:
            members = self.grow(seed, selector, dropped)
            lost = self.to_lose(members, seed)
            if not lost:
                break
            dropped |= lost
            selector.reset()
        waiting = self.connected(selector.filter(sorted(members)))
        while waiting:
            part = waiting.pop(0)
            lost = self.to_lose(part, part[0])
            if lost:
                waiting = self.connected([v for v in part if v not in lost]) + waiting
            else:
                self.groups.append(part)
                self.look_again()

    def grow(self, seed, selector, dropped):
        members, queue = [seed], [seed]
        closed_inputs, closed_consumers = set(), set()
        patient = self.questions <= self.patience
        while queue:
            cur = queue[0] if patient else min(queue)
            queue.remove(cur)
            if not patient and self.reached_from(closed_consumers, cur):
                continue
            closed_inputs |= {u for u in set(self.all_ins[cur]) - set(self.ins[cur]) if self.never_joins(u, members, dropped)}
            outs_by_control = set(self.all_outs[cur]) - set(self.outs[cur])
            closed_consumers |= {w for w in outs_by_control if self.never_joins(w, members, dropped)}
            for near, ask, closed in (
                (self.ins[cur], selector.select_input, closed_inputs),
                (self.outs[cur], selector.select_output, closed_consumers),
            ):
                for new in near:
                    if new in members:
                        continue
                    if self.never_joins(new, members, dropped):
                        closed.add(new)
                    elif self.reached_from(closed_consumers, new) or self.reaches_one_of(closed_inputs, new):
                        blocking = [c for c in closed_consumers if self.reached_from({c}, new)]
                        blocking += [c for c in closed_inputs if self.reaches_one_of({c}, new)]
                        self.passed_over.append((cur, new, blocking))
                        closed.add(new)
                    else:
                        self.questions += 1
                        if ask(cur, new):
                            members.append(new)
                            queue.append(new)
                        else:
                            closed.add(new)
        return members

    def never_joins(self, node, members, dropped):
        return node not in members and (not self.usable[node] or node in self.taken or node in dropped)

    def reached_from(self, closed, node):
        return any(self.owner[node] in self.reach[self.owner[c]] for c in closed)

    def reaches_one_of(self, closed, node):
        return any(self.owner[c] in self.reach[self.owner[node]] for c in closed)

    def to_lose(self, members, seed):
        """Members that a path from the set over outside nodes re-enters; if only the seed, those where such start."""
        after = {w for v in members for w in self.all_outs[v] if w not in members}
        before = {w for v in members for w in self.all_ins[v] if w not in members}
        reentered = {v for v in members if self.reached_from(after, v)}
        left = {v for v in members if self.reaches_one_of(before, v)}
        return (reentered - {seed}) or (left - {seed})

    def connected(self, nodes):
        return parts(nodes, lambda u, v: u in self.ins[v] or v in self.ins[u])


def literal_seed(
    preds: list[list[int]], color: Sequence[int | None], control: Collection[tuple[int, int]] = frozenset()
) -> Groups:
    """The seed document's algorithm; the groups in the order of choice, which may depend on each other."""
    ins, outs = neighbours(preds)
    reach = beyond(quotient(preds, [])[1])
    free = {v for v, c in enumerate(color) if c is not None}

    def refers_to_itself(members: list[int], rejected: set[int]) -> bool:
        return any(
            node in reach[src] and dst in reach[node] for src in members for dst in members for node in rejected
        )

    def candidate(root: int) -> list[int]:
        members, rejected = [root], set()
        trail = [(root, outs[root] + ins[root])]
        while trail:
            cur, near = trail[-1]
            if cur not in members or not near:
                trail.pop()
                continue
            new, trail[-1] = near[0], (cur, near[1:])
            if new in members or new in rejected:
                continue
            may_join = new in free and color[new] == color[root]
            if may_join and ((cur, new) in control or (new, cur) in control):
                continue
            if may_join:
                members.append(new)
            else:
                rejected.add(new)
            while refers_to_itself(members, rejected):
                rejected.add(members.pop())
            if new in members:
                trail.append((new, outs[new] + ins[new]))
        return members

    chosen = []
    for device in dict.fromkeys(c for c in color if c is not None):
        while roots := [v for v in sorted(free) if color[v] == device]:
            listed: Groups = []
            for root in roots:
                if not any(root in group for group in listed):
                    listed.append(candidate(root))
            chosen.append(sorted(max(listed, key=len)))
            free -= set(chosen[-1])
    return chosen


def leaves(u: int, v: int, group: Groups | list[int], control: Collection[tuple[int, int]]) -> bool:
    """Does the edge u→v leave the group, or may the group not grow over it?"""
    return u in group and (v not in group or (u, v) in control)


def repaired_seed(
    preds: list[list[int]], color: Sequence[int | None], control: Collection[tuple[int, int]] = frozenset()
) -> Groups:
    """A group that closes a cycle with those before it becomes the components of equal labels."""
    done: Groups = []
    values = without(preds, control)
    for group in literal_seed(preds, color, control):
        if acyclic(preds, [*done, group]):
            done.append(group)
            continue
        _, graph = quotient(preds, done)
        label: dict[int, int] = {}
        for x in networkx.topological_sort(graph):
            label[x] = max((label[p] + leaves(p, x, group, control) for p in graph.predecessors(x)), default=0)
        done += parts(group, lambda u, v: label[u] == label[v] and (u in values[v] or v in values[u]))  # noqa: B023
    return done


def fewest_waves(preds: list[list[int]], color: Sequence[int | None], accept: Accept) -> int:
    """The fewest groups of an acyclic partition, unconnected ones allowed, by trying all sequences of devices."""

    def wave(done: frozenset[int], device: int | None) -> frozenset[int]:
        """All that runs now: nodes of the device, or the ungrouped ones."""
        now = set(done)
        for v, ps in enumerate(preds):
            ready = all(u in done or (u in now and (device is None or accept(u, v))) for u in ps)
            if color[v] == device and ready:
                now.add(v)
        return frozenset(now)

    devices = {c for c in color if c is not None}
    states = {wave(frozenset(), None)}
    steps = 0
    while not any(len(done) == len(preds) for done in states):
        states = {wave(wave(done, device), None) for done in states for device in devices}
        steps += 1
    return steps
