"""The order that insertion keeps, and the graph that contraction keeps acyclic."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from partita.partition.growth.quotient import OrderList, Quotient
from tests.graphs.on_integers import graphs
from tests.partition.growth.oracles import acyclic, neighbours, quotient


def listed(order: OrderList) -> list[int]:
    items, x = [], order.following[order.end]
    while x != order.end:
        items.append(x)
        x = order.following[x]
    return items


def check_order(order: OrderList, expected: list[int]) -> None:
    assert listed(order) == expected
    ranks = [order.rank[x] for x in expected]
    assert ranks == sorted(set(ranks))
    assert all(order.preceding[order.following[x]] == x for x in [*expected, order.end])


def test_an_order_survives_moves() -> None:
    rng = random.Random(3)
    order, expected = OrderList(50), list(range(50))
    for _ in range(3_000):
        x = rng.choice(expected)
        order.unlink(x)
        expected.remove(x)
        at = rng.randrange(len(expected) + 1)
        order.insert_after(expected[at - 1] if at else order.end, x)
        expected.insert(at, x)
    check_order(order, expected)


def test_many_insertions_at_one_place() -> None:
    order, expected = OrderList(3_000, [7, 0]), [7, 0]
    for x in [*range(1, 7), *range(8, 3_000)]:
        order.insert_after(7, x)
        expected.insert(1, x)
    check_order(order, expected)


def test_an_item_takes_the_place_of_another() -> None:
    order = OrderList(4, [2, 0, 3])
    order.replace(0, 1)
    check_order(order, [2, 1, 3])


@settings(deadline=None, max_examples=150)
@given(graphs(), st.randoms(use_true_random=False))
def test_a_merge_happens_exactly_where_it_closes_no_cycle(graph, rng) -> None:
    ins, outs = neighbours(graph.preds)
    groups = [[v] for v in graph.nodes]
    contracted = Quotient([s[:] for s in outs], [p[:] for p in ins])
    for _ in range(12):
        chosen = rng.sample(groups, min(len(groups), rng.choice([2, 2, 3])))
        if len(chosen) < 2:
            return
        names = [contracted.find(group[0]) for group in chosen]
        merged = [v for group in chosen for v in group]
        rest = [group for group in groups if group not in chosen]
        fine = acyclic(graph.preds, [*rest, merged])
        assert contracted.closes_cycle(names) == (not fine)
        path = contracted.merge(names)
        assert (path is None) == fine
        if fine:
            groups = [*rest, merged]
        else:
            assert path is not None
            assert runs_around(graph.preds, groups, chosen, [contracted.find(x) for x in path], contracted)
        check_topological(graph.preds, contracted)


def runs_around(preds, groups, chosen, path, contracted) -> bool:
    """Do these outside groups make a path from one of the chosen to another?"""
    owner, graph = quotient(preds, groups)
    chosen = {owner[group[0]] for group in chosen}
    outside = {owner[v] for v in graph if contracted.find(v) in path} - chosen
    subgraph = graph.subgraph(outside)
    starts = {w for v in chosen for w in graph.successors(v)} & outside
    ends = {w for v in chosen for w in graph.predecessors(v)} & outside
    return any(e == s or e in reachable(subgraph, s) for s in starts for e in ends)


def reachable(graph, start):
    seen, queue = {start}, [start]
    for v in queue:
        queue += [w for w in graph.successors(v) if w not in seen]
        seen.update(graph.successors(v))
    return seen


def check_topological(preds, contracted: Quotient) -> None:
    rank = contracted.order.rank
    for v, producers in enumerate(preds):
        for u in producers:
            a, b = contracted.find(u), contracted.find(v)
            assert a == b or rank[a] < rank[b]
