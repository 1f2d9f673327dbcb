"""Growth "waves": the fewest calls. All ready nodes of one device run as one group, connected or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from partita.partition.growth.fixed import by_size, renumbered
from partita.partition.growth.labels import Accept, Color, Preds, refusals

Wave = list[int]
"""The nodes of one device that run together."""


def waves(
    preds: Preds, color: Color, accept: Accept | None = None, fixed: Sequence[Sequence[int]] = ()
) -> list[list[int]]:
    """As few groups as can be found; a group may be unconnected, and no refused edge is inside one.

    Any acyclic partition can be run group by group. Conversely, given the sequence of devices, each
    step runs all nodes that its device can run by then. Running early never hurts, so only the sequence has to be found.
    Each step takes a device whose longest chain of remaining waves it shortens, if there is one. Several
    tie-breaks are tried, from the inputs down and from the outputs up, until the sum of the devices' longest
    chains, a lower bound for any partition, is met.

    Linear per try, times the number of devices. A heuristic: with three devices and more the problem contains
    shortest common supersequence. Against exhaustive search on 4,400 random graphs of up to 40
    nodes it found the optimum on each with up to two devices; with three and four on all but 5 of 1,221 (those were
    four independent chains); with five and six on 353 of 400. It was two groups above on 2 graphs, never more,
    and 1.7 % in total on the worst family. `largest` never had fewer groups on 7,000 random graphs without refused
    edges (it may hold such edges inside, `waves` may not), which is observed, not proved."""
    if fixed:
        return renumbered(waves, preds, color, accept, fixed)
    devices = list(dict.fromkeys(c for c in color if c is not None))
    if not devices:
        return []
    number = {c: i for i, c in enumerate(devices)}
    device = [-1 if c is None else number[c] for c in color]
    down = _Flow.of(preds, device, len(devices), refusals(preds, color, accept))
    up = down.reversed()
    bound = sum(down.chains)
    best: list[Wave] = []
    for choose in CHOICES:
        for flow in (down, up):
            groups_found = _run(flow, choose)
            if not best or len(groups_found) < len(best):
                best = groups_found
            if len(best) == bound:
                break
        if len(best) == bound:
            break
    return by_size([sorted(wave) for wave in best])


@attrs.frozen
class _Flow:
    """The graph in the direction of the run."""

    device: list[int]
    """The device of each node, -1 for a node that is never grouped."""
    shared: list[list[int]]
    """The consumers that may be in the same wave as the node."""
    later: list[list[int]]
    """The other consumers, which come in later waves."""
    inputs: list[int]
    """Number of edges to each node."""
    order: list[int]
    """A topological order."""
    level: list[int]
    """Number of remaining waves of its own device at each node, including itself."""
    chains: list[int]
    """Per device the maximum of `level`."""
    back: tuple[list[list[int]], list[list[int]]]
    """`shared` and `later` of the other direction."""

    @classmethod
    def of(cls, preds: Preds, device: list[int], devices: int, refused: set[tuple[int, int]]) -> _Flow:
        shared: list[list[int]] = [[] for _ in preds]
        later: list[list[int]] = [[] for _ in preds]
        accepted: list[list[int]] = [[] for _ in preds]
        others: list[list[int]] = [[] for _ in preds]
        for v, producers in enumerate(preds):
            for u in dict.fromkeys(producers):
                together = device[u] == device[v] >= 0 and (u, v) not in refused
                (accepted if together else others)[v].append(u)
                (shared if together else later)[u].append(v)
        return cls.of_edges(device, devices, (shared, later), (accepted, others), list(range(len(preds))))

    @classmethod
    def of_edges(
        cls,
        device: list[int],
        devices: int,
        forth: tuple[list[list[int]], list[list[int]]],
        back: tuple[list[list[int]], list[list[int]]],
        order: list[int],
    ) -> _Flow:
        shared, later = forth
        level, chains = _levels(device, devices, shared, later, order)
        inputs = [len(a) + len(b) for a, b in zip(*back)]
        return cls(device, shared, later, inputs, order, level, chains, back)

    def reversed(self) -> _Flow:
        """The same flow with every edge reversed, which runs from the outputs up."""
        return _Flow.of_edges(self.device, len(self.chains), self.back, (self.shared, self.later), self.order[::-1])


def _levels(
    device: list[int], devices: int, shared: list[list[int]], later: list[list[int]], order: list[int]
) -> tuple[list[int], list[int]]:
    """-> (per node the remaining waves of its own device; per device the maximum of those)."""
    level = [0] * len(device)
    chains = []
    for d in range(devices):
        ahead = [0] * len(device)  # the waves of device d from each node on
        for v in reversed(order):
            most = 0
            for w in later[v]:
                if ahead[w] > most:
                    most = ahead[w]
            if device[v] == d:
                most += 1
                for w in shared[v]:
                    if ahead[w] > most:
                        most = ahead[w]
                level[v] = most
            else:
                for w in shared[v]:
                    if ahead[w] > most:
                        most = ahead[w]
            ahead[v] = most
        chains.append(max(ahead, default=0))
    return level, chains


@attrs.define
class _ReadyNodes:
    """The nodes that one device can run in a wave now, and those left after that."""

    nodes: Wave
    left: list[int]
    """Per level the number of nodes that are neither run nor ready."""
    top: int
    """The device's longest chain of remaining waves."""
    turn: int = -1
    """The last turn in which it ran."""

    def shortens(self) -> bool:
        """True if a wave now shortens the longest chain, that is, if all nodes of the top level are ready."""
        return not self.left[self.top]


Choice = Callable[[_ReadyNodes], tuple[int, ...]]
"""The sort key of the next device: the largest wins; the earlier device among equals."""

CHOICES: tuple[Choice, ...] = (
    lambda ready: (ready.shortens(), ready.top),
    lambda ready: (ready.shortens(), -ready.turn),
    lambda ready: (ready.shortens(), len(ready.nodes)),
    lambda ready: (ready.top, len(ready.nodes)),
    lambda ready: (-ready.turn,),
)


def _run(flow: _Flow, choose: Choice) -> list[Wave]:
    """Runs wave after wave. Each edge is visited once: linear, plus the number of devices per wave."""
    device, shared, later = flow.device, flow.shared, flow.later
    waiting = list(flow.inputs)
    state = [_ReadyNodes([], [0] * (top + 1), top) for top in flow.chains]
    for v, d in enumerate(device):
        if d >= 0:
            state[d].left[flow.level[v]] += 1

    def arrive(v: int) -> None:
        """Marks v as ready: an ungrouped node runs, others wait with all that may join them."""
        stack = [v]
        while stack:
            v = stack.pop()
            d = device[v]
            if d >= 0:
                state[d].nodes.append(v)
                state[d].left[flow.level[v]] -= 1
            for w in shared[v] if d >= 0 else later[v]:
                waiting[w] -= 1
                if not waiting[w]:
                    stack.append(w)

    for v in flow.order:
        if not flow.inputs[v]:
            arrive(v)
    done: list[Wave] = []
    while ready := [r for r in state if r.nodes]:
        chosen = max(ready, key=choose)
        wave, chosen.nodes, chosen.turn = chosen.nodes, [], len(done)
        done.append(wave)
        while chosen.top and not chosen.left[chosen.top]:
            chosen.top -= 1
        for v in wave:
            for w in later[v]:
                waiting[w] -= 1
                if not waiting[w]:
                    arrive(w)
    return done
