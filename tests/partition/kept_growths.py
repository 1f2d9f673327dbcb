"""Growth on drawn integers, step by step and at its limits; what a user's groups, growths, selectors and properties are told;
patterns with operands; differences of graphs; and paths in messages.

`python -m tests.partition.kept_growths` writes the file that `test_kept_growths.py` compares with anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import partita as pt
from partita.graph.rewrite import rewrite
from partita.graph.shortest_path import arrows, cycle_in, way_between
from partita.partition import watch_view
from partita.partition.fingerprint import difference, fingerprint
from partita.partition.growth import GROWTHS, quotient, seed
from partita.partition.growth.quotient import OrderList, Quotient
from partita.partition.matcher import find_matches
from partita.partition.pattern import ANY, CONST
from tests.kept import lines_of, sum_of, told, write_kept
from tests.partition.kept_partitions import ONE, TWO, graph_of

largest = import_module("partita.partition.growth.largest")
join = import_module("partita.partition.growth.seed").join

KEPT = Path(__file__).with_name("kept_growths.txt")

COUNTS = {"quotient": 100, "order": 40, "grown": 120, "paths": 60, "watched": 50, "matched": 90, "own": 80, "made": 150,
          "unlike": 60}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]


# -- growth on integers --------------------------------------------------------------------------------

def edges_of(rng: random.Random, count: int) -> list[list[int]]:
    """The producers of each node, near and far."""
    preds: list[list[int]] = [[]]
    for v in range(1, count):
        near = range(max(0, v - 4), v)
        preds.append([rng.choice(near) for _ in range(rng.choice((0, 1, 1, 2, 3)))])
        if rng.random() < 0.15:
            preds[-1].append(rng.randrange(v))
    return preds


def contracted(rng: random.Random) -> Iterator[str]:
    """Merges of a quotient graph: the paths that prevent some, the order and the neighbours after the others."""
    count = rng.randint(4, 24)
    preds = [list(dict.fromkeys(each)) for each in edges_of(rng, count)]
    succ = [[v for v in range(count) if u in preds[v]] for u in range(count)]
    order: list[int] | None = sorted(range(count), key=lambda v: (len(preds[v]) > 0, v))
    if rng.random() < 0.7 or any(order.index(u) > order.index(v) for v in range(count) for u in preds[v]):
        order = None
    with (
        mock.patch.object(quotient, "CHUNK", rng.choice((1, 2, 3, 12))),
        mock.patch.object(quotient, "SMALL_LIST", rng.choice((2, 5, 64))),
        mock.patch.object(quotient, "GAP", rng.choice((2, 4, 1 << 24))),
    ):
        graph = Quotient(succ, preds, order)
        for _ in range(14):
            names = sorted({graph.find(v) for v in range(count)})
            if len(names) < 2:
                break
            members = rng.sample(names, min(len(names), rng.choice((2, 2, 2, 3, 4))))
            if rng.random() < 0.2:
                yield f"{members} closes {graph.closes_cycle(members)}"
            path = graph.merge(members)
            listed, at = [], graph.order.following[graph.order.end]
            while at != graph.order.end:
                listed.append(at)
                at = graph.order.following[at]
            ranks = [graph.order.rank[v] for v in listed]
            yield f"{members} {path} {listed} {ranks == sorted(set(ranks))} {[graph.find(v) for v in range(count)]}"
            if path is None:
                after, before = graph.succ[graph.find(members[0])], graph.pred[graph.find(members[0])]
                yield f"{sorted(map(graph.find, after))} {sorted(map(graph.find, before))} {len(after)}"


def ordered(rng: random.Random) -> Iterator[str]:
    """Insertions into an order whose gaps are small."""
    count = rng.randint(2, 9)
    with mock.patch.object(quotient, "GAP", rng.choice((1, 2, 3, 8))):
        order = OrderList(count, rng.choice((None, rng.sample(range(count), count))))
        for _ in range(25):
            x = rng.randrange(count)
            order.unlink(x)
            before = rng.choice([v for v in (*range(count), order.end) if v != x])
            order.insert_after(before, x)
            listed, at = [], order.following[order.end]
            while at != order.end:
                listed.append(at)
                at = order.following[at]
            back, at = [], order.preceding[order.end]
            while at != order.end:
                back.append(at)
                at = order.preceding[at]
            yield f"{x} after {before}: {listed} {back == listed[::-1]} {[order.rank[v] for v in listed]}"


def grown(rng: random.Random) -> Iterator[str]:
    """The groups that each growth makes, with limits that small graphs reach."""
    count = rng.randint(3, 40)
    preds = edges_of(rng, count)
    colors = [rng.choice((0, 0, 0, 1, 1, None)) for _ in range(count)]
    refused = {(u, v) for v in range(count) for u in preds[v] if rng.random() < 0.15}
    accept = rng.choice((None, lambda u, v: (u, v) not in refused))
    free = [v for v in range(count) if colors[v] is not None]
    fixed: list[list[int]] = []
    if rng.random() < 0.3 and len(free) > 3:
        fixed = [sorted(free[-2:])]
        for v in fixed[0]:
            colors[v] = None
    with (
        mock.patch.object(largest, "SMALL", rng.choice((4, 12, 3000))),
        mock.patch.object(largest, "FULL", rng.choice((6, 20, 30000))),
        mock.patch.object(largest, "SAMPLE", rng.choice((3, 8))),
        mock.patch.object(quotient, "CHUNK", rng.choice((1, 12))),
    ):
        yield f"{preds} {colors} {fixed}"
        for how in ("largest", "waves"):
            yield f"{how} {told(GROWTHS[how].grow, [list(p) for p in preds], list(colors), accept, fixed)}"
        yield f"seed {told(seed, [list(p) for p in preds], list(colors), accept, fixed)}"
        firsts = list(range(count))
        for v in range(count):
            for u in preds[v][:1]:
                if rng.random() < 0.5:
                    join(firsts, u, v)
        yield str(firsts)


# -- paths ---------------------------------------------------------------------------------------------

def paths(rng: random.Random) -> Iterator[str]:
    """A cycle, the shortest way between two items, and its text."""
    count = rng.randint(2, 12)
    edges = [(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randint(1, 16))]
    yield f"{edges} {cycle_in(edges)} {cycle_in([(a, b) for a, b in edges if a < b])}"
    yield str([way_between(edges, rng.randrange(count), rng.randrange(count)) for _ in range(4)])
    yield arrows([f"n{i}" for i in range(rng.choice((1, 7, 8, 9, 12)))])


# -- watching ------------------------------------------------------------------------------------------

class Few(pt.SubgraphSelector):
    """Takes at most some ops of some kinds, and filters the last one."""

    def __init__(self, kinds: Sequence[str], most: int, cut: bool) -> None:
        self.kinds, self.most, self.cut, self.taken = kinds, most, cut, 0

    def select(self, node: pt.Node) -> bool:
        return node.op in self.kinds

    def select_output(self, cur: pt.Node, new: pt.Node) -> bool:
        self.taken += 1
        return new.op in self.kinds and self.taken < self.most

    def select_input(self, cur: pt.Node, new: pt.Node) -> bool:
        return new.op in self.kinds and self.taken % 2 == 0

    def filter(self, candidates: Sequence[pt.Node]) -> Sequence[pt.Node]:
        return candidates[:-1] if self.cut and len(candidates) > 2 else candidates

    def reset(self) -> None:
        self.taken = 0


def selector_of(rng: random.Random) -> Any:
    kinds = rng.sample([*ONE, *TWO], rng.randint(3, 8))
    most, cut = rng.randint(1, 5), rng.random() < 0.4
    return rng.choice((pt.ContainOpSelector(set(kinds)), lambda: Few(kinds, most, cut)))


def watched(rng: random.Random) -> Iterator[str]:
    """A watch as text and pictures, whole and around an op."""
    graph, selector = graph_of(rng), selector_of(rng)
    with (
        mock.patch.object(watch_view, "MOST_LINES", rng.choice((4, 300))),
        mock.patch.object(watch_view, "MOST_STEPS", rng.choice((5, 200))),
        mock.patch.object(watch_view, "MOST_OPS", rng.choice((3, 6, 80))),
        mock.patch.object(watch_view, "REACH", rng.choice((1, 2))),
    ):
        try:
            found = pt.watch(graph, selector)
        except pt.PartitaError as error:
            yield f"{error}"
            return
        yield watch_view.text(found)[-300:]
        yield f"{sum_of(watch_view.text(found))} {len(found.frames)} {watch_view.seeds(found.frames)}"
        for step in (0, len(found.frames) // 2, -1):
            yield sum_of(watch_view.svg(found, step))
        yield str([(name, sum_of(text)) for name, text in watch_view.mimebundle(found).items()])
        names = [node.name for node in graph.nodes if node.is_op]
        for name in (None, rng.choice(names), "x", "n99", rng.choice(names)):
            try:
                near = found.around(name)
            except pt.PartitaError as error:
                yield f"{name} {error}"
            else:
                yield f"{name} {near.ops} {len(near.frames)} {sum_of(watch_view.html(near))}"


# -- choosing ------------------------------------------------------------------------------------------

def part_of(rng: random.Random) -> Any:
    """A part of a pattern as a user writes it."""
    op = rng.choice([*ONE, *TWO, "Relu|Neg", "*", "Add|Mul", "com.microsoft::Gelu"])
    if rng.random() < 0.3:
        count = rng.randint(1, 2)
        operands = [rng.choice((ANY, CONST, rng.choice(ONE), ["Neg", "Abs?"], rng.choice(TWO))) for _ in range(count)]
        return (rng.choice(TWO), *operands)
    if rng.random() < 0.1:
        return lambda node: len(node.name) % 2 == 0
    return op + rng.choice(("", "", "?"))


def matched(rng: random.Random) -> Iterator[str]:
    """The matches of a pattern, and why the longest was not taken."""
    graph = graph_of(rng)
    if rng.random() < 0.5:
        last = graph.outputs[0]
        more = pt.op("Add", pt.op("Mul", last, pt.constant(np.ones((3, 3), np.float32)), name="scaled"), last, name="joined")
        graph = pt.Graph([more, *graph.outputs[1:]], name="drawn")
    for _ in range(4):
        parts = [part_of(rng) for _ in range(rng.randint(1, 3))]
        try:
            pattern = pt.Pattern(*parts, shared=rng.random() < 0.3)
        except pt.PartitaError as error:
            yield f"{error}".replace(hex(id(parts[0])), "")[:200]
            continue
        if not any(callable(part) for part in parts):
            yield f"{pattern!r} {pattern.op_names()} {pattern.most_nodes}"
        yield told(lambda asked: [[node.name for node in match] for match in find_matches(graph, asked)], pattern)
        done = pt.apply_pass(graph, "PartitionGraph", subgraph_property=pt.PatternProperty(pattern, "mine"))
        report = done.attrs["partition_report"]
        names = [node.name for node in graph.nodes if node.is_op]
        yield sum_of("\n".join(told(report.explain, name) for name in names if "lambda" not in told(report.explain, name)))


def own(rng: random.Random) -> Iterator[str]:
    """Groups and growths of a user's own, and what is wrong with them."""
    graph = graph_of(rng)
    names = [node.name for node in graph.nodes if node.is_op]
    nodes = [node for node in graph.nodes if node.is_op]

    def groups() -> Any:
        drawn = [rng.sample(names, min(len(names), rng.randint(1, 3))) for _ in range(rng.randint(1, 2))]
        return rng.choice((
            drawn, drawn, [[graph[name] for name in group] for group in drawn], names[:2], [[], *drawn], [[names[0], names[0]]],
            [["nothing"]], [["x"]], "n0", {"a": 1}, 3, [3], [[3]], [[nodes[0], pt.op("Relu", graph.inputs[0], name="n0")]],
        ))

    for _ in range(3):
        options: dict[str, Any] = {"groups": groups()} if rng.random() < 0.6 else {}
        if not options:
            made = groups()
            options = {"growth": rng.choice((
                lambda nodes, accepts, made=made: made, lambda nodes, accepts: [nodes[:1], nodes[1:2]],
                lambda nodes, accepts: [[a, b] for a in nodes[:1] for b in nodes[1:] if accepts(a, b)],
                lambda nodes, accepts: nodes[99], "large", "waves", 3,
            )), "subgraph_property": pt.PatternProperty(pt.ContainOpSelector({*ONE, *TWO}), "mine")}
        if rng.random() < 0.2:
            options["min_subgraph_size"] = rng.choice((0, 1, 2, -1, True, "x"))
        if rng.random() < 0.2:
            options["max_nodes"] = rng.choice((0, 1, 2, -1))
        try:
            plan = pt.plan(graph, **options)
            done = pt.apply_pass(graph, "PartitionGraph", **options)
        except pt.PartitaError as error:
            yield f"{type(error).__name__}: {error}"[:400]
            continue
        report = done.attrs["partition_report"]
        yield f"{[group.nodes for group in plan.groups]} {sum_of(str(done))}"
        yield sum_of("\n".join(told(report.explain, name) for name in names))


# -- making calls --------------------------------------------------------------------------------------

def _one(body: pt.Graph, **more: Any) -> pt.Node:
    return pt.op("Fused", *body.inputs, domain="acc", n_outputs=len(body.outputs), name="fused", **more)


MAKERS: Mapping[str, Callable[[Any, pt.Graph, int], Any]] = {
    "a call": lambda self, body, i: pt.call(body, name=f"call{i}"),
    "nothing": lambda self, body, i: None,
    "first only": lambda self, body, i: pt.call(body) if i == 0 else None,
    "an op": lambda self, body, i: _one(body),
    "unconnected": lambda self, body, i: pt.op("Fused", domain="acc", n_outputs=len(body.outputs), name="fused"),
    "too few": lambda self, body, i: pt.op("Fused", *body.inputs, domain="acc", n_outputs=len(body.outputs) + 1),
    "one input": lambda self, body, i: pt.op("Fused", body.inputs[0], domain="acc", n_outputs=len(body.outputs)),
    "its own": lambda self, body, i: pt.op("Fused", body.outputs[0], *body.inputs, domain="acc", n_outputs=len(body.outputs)),
    "inside": lambda self, body, i: pt.op("Fused", body.nodes[-1], *body.inputs, domain="acc", n_outputs=len(body.outputs)),
    "another": lambda self, body, i: pt.op("Fused", pt.op("Relu", body.inputs[0]), domain="acc", n_outputs=len(body.outputs)),
    "a variable": lambda self, body, i: pt.op("Fused", pt.variable("q", "float32", (3, 3)), *body.inputs, domain="acc",
                                              n_outputs=len(body.outputs)),
    "a constant": lambda self, body, i: pt.op("Fused", *body.inputs, pt.constant(np.ones(2, np.float32), name="n0"), domain="acc",
                                              n_outputs=len(body.outputs)),
    "after": lambda self, body, i: _one(body).evolve(after=(body.nodes[-1],)),
    "elsewhere": lambda self, body, i: _one(body).evolve(affinity="another"),
    "a taken name": lambda self, body, i: _one(body).evolve(name="n0"),
    "no node": lambda self, body, i: 3,
    "an error": lambda self, body, i: {}["key"],
    "another body": lambda self, body, i: pt.call(body.evolve(name="other"), name="call"),
    "an attribute": lambda self, body, i: _one(body, level=i),
}
"""Results that create_subgraph_node may return."""

HOOKS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "none": {},
    "review": {"review_subgraph": lambda self, body, i: i % 2 == 0},
    "review, attributes": {"review_subgraph": lambda self, body, i: {"size": len(body.nodes)}},
    "review, wrong": {"review_subgraph": lambda self, body, i: "yes"},
    "inputs": {"init_subgraph_inputs": lambda self, variables, entries: [
        pt.variable(f"in{k}", type=entry.type) for k, entry in enumerate(entries)]},
    "inputs, too few": {"init_subgraph_inputs": lambda self, variables, entries: variables[:-1]},
    "inputs, one name": {"init_subgraph_inputs": lambda self, variables, entries: [
        pt.variable("in", type=entry.type) for entry in entries]},
    "inputs, ops": {"init_subgraph_inputs": lambda self, variables, entries: [entry.node for entry in entries]},
    "adjusted": {"adjust_subgraph_node": lambda self, nodes, i: [node.evolve(metadata={"seen": "yes"}) for node in nodes]},
    "adjusted, too few": {"adjust_subgraph_node": lambda self, nodes, i: nodes[:-1]},
    "adjusted, another": {"adjust_subgraph_node": lambda self, nodes, i: [node.evolve(name="q") for node in nodes]},
    "connects": {"connect_subgraph_inputs": lambda self, node, entries: node.evolve(inputs=tuple(reversed(entries)))},
    "connects too much": {"connect_subgraph_inputs": lambda self, node, entries: node.evolve(inputs=(node[0],))},
    "outputs": {"connect_subgraph_outputs": lambda self, node, entries: [node[k] for k in range(len(entries))]},
    "outputs, too few": {"connect_subgraph_outputs": lambda self, node, entries: []},
    "before": {"pre_partition": lambda self, graph, options: 1 / 0},
    "behind": {"post_partition": lambda self, graph: None},
}
"""Hooks beside it."""


def made(rng: random.Random) -> Iterator[str]:
    """The graphs that a property's calls give, or what is wrong with them."""
    graph = graph_of(rng)
    if rng.random() < 0.4:
        graph = pt.apply_pass(graph, "InferShape")
    kinds = rng.sample([*ONE, *TWO, "Split", "Concat"], rng.randint(4, 9))
    maker, hooks = rng.choice([*MAKERS]), rng.choice([*HOOKS, "none", "none"])
    if hooks.startswith("adjusted"):
        maker = "nothing"
    members = {"create_subgraph_node": MAKERS[maker], **HOOKS[hooks]}
    kind = type("Mine", (pt.PatternProperty,), members)
    options: dict[str, Any] = {"infer_types": rng.random() < 0.6}
    if rng.random() < 0.2:
        options["dedup_inputs"] = False
    yield f"{maker} {hooks} {options}"
    try:
        done = pt.apply_pass(graph, "PartitionGraph", subgraph_property=kind(pt.ContainOpSelector(set(kinds)), "mine"), **options)
    except pt.PartitaError as error:
        yield f"{type(error).__name__}: {error}"[:500]
        return
    report = done.attrs["partition_report"]
    yield f"{sum_of(str(done))} {sum_of(str(report))} {[node.name for node in done.nodes if node.is_op][:6]}"
    names = [node.name for node in graph.nodes if node.is_op]
    yield sum_of("\n".join(told(report.explain, name) for name in names))


# -- differences ---------------------------------------------------------------------------------------

def unlike(rng: random.Random) -> Iterator[str]:
    """The differences of graphs of which one node is another."""
    graph = graph_of(rng)
    names = [node.name for node in graph.nodes if node.is_op]
    name = rng.choice(names)
    node = graph[name]
    changes: dict[str, Callable[[pt.Node], pt.Node]] = {
        "op": lambda node: node.evolve(op="Sin"), "inputs": lambda node: node.evolve(inputs=node.inputs[::-1]),
        "attribute": lambda node: node.evolve(attrs={**node.attrs, "level": np.ones(2)}),
        "left out": lambda node: node.evolve(inputs=(*node.inputs, None)),
        "domain": lambda node: node.evolve(domain="mine"), "nothing": lambda node: node,
    }
    how = rng.choice([*changes])

    def visit(each: pt.Node, rewriter: Any) -> None:
        rebuilt = rewriter.rebuilt(each)
        rewriter.keep(each, changes[how](rebuilt) if each.name == name else rebuilt)

    other = rewrite(graph, visit)
    yield f"{how} {fingerprint(graph) == fingerprint(other)} {fingerprint(other)[:8]} {len(node.inputs)}"
    yield difference(other, names, True, graph)
    yield difference(other, names, rng.random() < 0.5)
    yield difference(graph, [*names[1:], *rng.sample(("a", "b", "c", "d", "e"), rng.randint(0, 5))], rng.random() < 0.5)
    yield difference(graph.evolve(opsets={"": 9}), names, True, graph)
    yield difference(pt.Graph(graph.outputs[:1], graph.inputs, "less"), names, True, graph)


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "quotient": contracted, "order": ordered, "grown": grown, "paths": paths, "watched": watched, "matched": matched, "own": own,
    "made": made, "unlike": unlike,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    return lines_of(KINDS, "growths", subject)


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
