"""Placements by cost of random graphs on random devices, under random costs, limits and rules: their certificates, reasons,
what-ifs and locked plans; and the assignments of random problems.

`python -m tests.accelerators.placement.kept_placements` writes the file that `test_kept_placements.py` compares with anew."""

from __future__ import annotations

import io
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import numpy as np
from rich.console import Console

import partita as pt
from partita.accelerators.placement import throughput
from partita.accelerators.placement.assignment import Assigner, cut
from partita.accelerators.placement.device_bytes import ReadWeights, ValueSpans, projected
from partita.accelerators.placement.fitting import Fitting
from partita.accelerators.placement.locked import LockedPlan
from partita.graph.types import Array
from tests.accelerators.hetero.small_devices import device
from tests.accelerators.placement.problems import problem
from tests.kept import write_kept

KEPT = Path(__file__).with_name("kept_placements.txt")

ONE, TWO = ("Relu", "Neg", "Abs", "Exp"), ("Add", "Mul", "Sub")
OPS = (*ONE, *TWO, "MatMul", "Split", "Concat")
LABELS = ("alpha", "beta", "gamma")

COUNTS = {
    "place": 60, "rules": 60, "plan": 60, "what if": 50, "assign": 60, "fit": 40, "query": 60, "file": 40, "bytes": 60,
    "wish": 20, "balance": 30,
}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]


def graph_of(rng: random.Random, most: int = 14) -> pt.Graph:
    """A graph of matrices of one height in which most ops read what is near, some a constant, some nothing else."""
    height = rng.choice((4, 4, 32, "n"))
    values: list[Any] = [pt.variable(name, "float32", (height, 8)) for name in ("x", "y")[: rng.randint(1, 2)]]
    weights = [pt.constant(np.full((8, 8), i, np.float32), name=f"w{i}") for i in range(3)]
    ops = []
    for number in range(rng.randint(3, most)):
        near, name, chance = values[-4:], f"n{number}", rng.random()
        if chance < 0.1:
            node = pt.op("Split", rng.choice(near), name=name, axis=1, num_outputs=2, n_outputs=2)
            values.append(pt.op("Concat", node[1], node[0], name=f"{name}c", axis=1))
        elif chance < 0.5:
            values.append(pt.op(rng.choice(ONE), rng.choice(near), name=name))
        elif chance < 0.75:
            values.append(pt.op(rng.choice(TWO), rng.choice(near), rng.choice(near), name=name))
        elif chance < 0.95:
            weight: Any = rng.choice(weights)
            if rng.random() < 0.2:
                weight = pt.op("Neg", weight, name=f"{name}t")
            values.append(pt.op("MatMul", rng.choice(near), weight, name=name))
        else:
            values.append(pt.op("Abs", pt.op("Exp", rng.choice(near), name=f"{name}e"), name=name))
        ops.append(values[-1])
    graph = pt.Graph([ops[-1], *rng.sample(ops[:-1], min(2, len(ops) - 1))], name="drawn", opsets={"": 18})
    if rng.random() < 0.25:
        some = set(rng.sample(OPS, 4))
        graph = pt.apply_pass(graph, "PartitionGraph", subgraph_property=pt.PatternProperty(pt.ContainOpSelector(some), "own"))
    return graph


def devices_of(rng: random.Random, stack: ExitStack) -> str:
    """Two or three registered devices, of which the last one runs nearly all."""
    labels = LABELS[: rng.randint(2, 3)]
    for label in labels:
        some = OPS if rng.random() < 0.3 else rng.sample(OPS, rng.randint(4, 8))
        if label == labels[-1] and rng.random() < 0.9:
            some = OPS
        stack.enter_context(device(label, " ".join(some)))
    return f"HETERO:{','.join(labels)}"


def costs_of(rng: random.Random, graph: pt.Graph) -> Any:
    """Whole microseconds for most ops on most devices, and for hand-overs."""
    kind = rng.random()
    if kind < 0.15:
        return None
    drawn = {(label, op): float(rng.randint(0, 60)) for label in LABELS for op in OPS}
    if kind < 0.3:
        return lambda node, label: drawn.get((label, node.op), 7.0 if label == "gamma" else None)
    names = [node.name for node in graph.nodes if node.is_op]
    there, share = [label for label in LABELS if rng.random() < 0.97], rng.choice((1.0, 0.97, 0.85))
    times = {label: {name: float(rng.randint(0, 60)) for name in names if rng.random() < share} for label in there}
    if kind < 0.4:
        return times
    ends = (*LABELS, "host")
    pairs = [(a, b) for a in ends for b in ends if a != b and rng.random() < 0.6]
    rates = (16.0, 64.0, 1024.0)
    return pt.Costs(times, {pair: pt.HandOver(float(rng.randint(0, 15)), rng.choice(rates)) for pair in pairs}, "drawn")


def rules_of(rng: random.Random, graph: pt.Graph) -> dict[str, Any]:
    """`pin` and `forbid`, some of which contradict each other."""
    ops = [node for node in graph.nodes if node.is_op]
    options: dict[str, Any] = {}
    if rng.random() < 0.4:
        name = rng.choice(ops).name
        options["pin"] = {rng.choice((name, f"{name[:2]}.*", "n[0-3]")): rng.choice((*LABELS[:2] * 3, "gamma"))}
    if rng.random() < 0.6:
        node = rng.choice(ops)
        keys = (node.name, str(node.op), f"{node.name[:2]}.*", "MatMul")
        options["forbid"] = {rng.choice(keys): rng.choice(("alpha", "alpha", "beta", ["alpha", "beta"], "gamma"))}
    return options


def limits_of(rng: random.Random) -> Any:
    if rng.random() < 0.6:
        return None
    return {rng.choice(LABELS[:2]): rng.choice((256, 400, 600, "0.7KB", "1kB", 2000, 4096)) for _ in range(rng.randint(1, 2))}


def placed(placement: Any, stages: bool = True) -> Iterator[str]:
    """What a placement by cost says."""
    yield str(placement)
    certificate = placement.certificate.to_dict()
    yield json.dumps({key: round(one, 6) if isinstance(one, float) else one for key, one in certificate.items()})
    yield f"{dict(placement)} {placement.to_dict()['bytes']} {placement.limits} {placement.inlined} {sorted(placement.computed)}"
    if stages:
        yield from (placement.why(name) for name in placement)


def drawn(rng: random.Random, rules: bool) -> Iterator[str]:
    options = {} if rules else {"limit": limits_of(rng), "even": rng.random() < 0.1}
    graph = graph_of(rng, 9 if any(options.values()) else 14)
    with ExitStack() as stack:
        labels = devices_of(rng, stack)
        options |= rules_of(rng, graph) if rules else {}
        yield from placed(pt.place(graph, labels, costs=costs_of(rng, graph), **options))


def if_so(rng: random.Random) -> Iterator[str]:
    graph = graph_of(rng)
    with ExitStack() as stack:
        labels = devices_of(rng, stack)
        placement = pt.place(graph, labels, costs=costs_of(rng, graph), limit=limits_of(rng), **rules_of(rng, graph))
        yield from map(str, placement.wishes())
        asked: dict[str, Any] = {}
        if rng.random() < 0.5:
            asked["support"] = {rng.choice(OPS): rng.choice((*LABELS, ["alpha", "beta"]))}
        if rng.random() < 0.5:
            asked["speed"] = {rng.choice(LABELS): rng.choice((0.25, 2, 3.0, np.int64(4)))}
        if rng.random() < 0.3:
            asked["without"] = rng.choice((*LABELS, ["alpha", "gamma"]))
        if rng.random() < 0.4:
            asked["limit"] = {rng.choice(LABELS): rng.choice((500, None, "1KiB"))}
        yield f"if {asked}"
        yield from placed(placement.what_if(**asked), False)


def written(rng: random.Random) -> Iterator[str]:
    """Costs and plans as files, and what is said of changed ones."""
    graph = graph_of(rng)
    with ExitStack() as stack:
        plan = LockedPlan.of(pt.query(graph, devices_of(rng, stack), partial=True))
    costs = pt.Costs({"alpha": {"n0": 2.0, "n1": 1.5}}, {("alpha", "beta"): pt.HandOver(3.0, 64.0)}, "drawn")
    yield f"{costs} {pt.Costs.from_json(costs.to_json()) == costs}"
    yield f"{costs.hand_over('alpha', 'beta')} {costs.hand_over('beta', 'alpha')}"
    yield f"{costs.hand_over('alpha', 'host')} {costs.hand_over('alpha', 'alpha')} {costs.hand_over('host', 'beta')}"
    for times in ({"alpha": {2: 1.0}}, {1: {"n0": 1.0}}, {"alpha": {"n0": 1e15}}, {"alpha": {"n0": 1.1e15}}):
        yield said(pt.Costs, times)
    out = io.StringIO()
    Console(file=out, width=120, color_system=None).print(costs)
    yield out.getvalue()
    readers: dict[str, Callable[[str], Any]] = {
        costs.to_json(): lambda given: str(pt.Costs.from_json(given)),
        plan.to_json(): lambda given: LockedPlan.from_json(given, "here"),
    }
    for text, read in readers.items():
        for _ in range(4):
            content = json.loads(text)
            first = next(iter(content))
            place = rng.choice((content, content.get("nodes") or content["times"]))
            key = rng.choice((first, *place))
            change = rng.choice((2, "x", [], {}, ["zeta"], [["n0"]], None, 1.5))
            if rng.random() < 0.2:
                place.pop(key, None)
            else:
                (content if key == first else place)[key] = change
            yield f"{key} {change!r}: {said(read, json.dumps(content))[:240]}"


def held(rng: random.Random) -> Iterator[str]:
    """The bytes of weights and values that a drawn placement takes on each device, estimated and as partitioned."""
    graph = pt.apply_pass(graph_of(rng), "InferShape")
    names = [node.name for node in graph.nodes if node.is_op]
    computed = [name for name in names if name.endswith("t")]
    listed = [name for name in names if name not in computed]
    weights, spans = ReadWeights(graph, listed, computed), ValueSpans(graph, {name: i for i, name in enumerate(listed)})
    yield f"{weights.sizes} {weights.readers} {spans.made.tolist()} {spans.floors.tolist()}"
    for count in (1, 2, 3):
        chosen = np.array([rng.randrange(count) for _ in listed], np.intp)
        where = {name: LABELS[device] for name, device in zip(listed, chosen.tolist())} | dict.fromkeys(computed, "alpha")
        taken = projected(graph, {name: where[name] for name in names}, LABELS, computed)
        yield f"{chosen.tolist()} {spans.peaks(chosen, count).tolist()} {[(one.weights, one.values) for one in taken.values()]}"


def asked(rng: random.Random) -> Iterator[str]:
    """What a query says that need not place every op, before and after some ops are placed by hand."""
    graph = graph_of(rng)
    with ExitStack() as stack:
        labels = devices_of(rng, stack)
        if rng.random() < 0.6:
            vars(pt.accelerator(labels.rpartition(",")[2]))["ops"] = frozenset(rng.sample(OPS, 6))
        placement = pt.query(graph, labels, **rules_of(rng, graph), partial=True)
        names = [node.name for node in graph.nodes]
        for number in range(2):
            yield f"{placement!r} {len(placement)} {placement.ops} {placement.pinned} {placement.notes}"
            yield str(placement)
            yield json.dumps(placement.to_dict())
            out = io.StringIO()
            Console(file=out, width=200, color_system=None).print(placement.to_table(3))
            yield out.getvalue()
            for name in placement.unsupported or rng.sample(names, 2):
                yield said(placement.why, name)
            for name in list(placement)[:6]:
                later = [label for label in placement.devices if placement.has_other(name, label)]
                yield f"{name} {placement.able(name)} {placement.is_refused(name)} {later} {placement.refusals(name)}"
            if number == 0:
                for name in [*rng.sample(names, 3), *placement.unsupported, "nn"]:
                    yield said(placement.__setitem__, name, rng.choice((*placement.devices, placement.devices[0], "gama")))
        for do in (placement.__delitem__, placement.__getitem__):
            yield said(do, "n0")
        yield said(lambda: [(node.name, node.affinity) for node in placement.apply(graph).nodes if node.is_op])
        yield said(lambda: placement.apply(pt.Graph([graph.outputs[-1]], name="less", opsets=graph.opsets)).name)
        moved = [name for name, label in placement.items() if label == placement.devices[0]][:2]
        yield said(placement.move, moved, placement.devices[0], "it broke")
        alone = pt.query(graph, "reference")
        yield f"{alone!r} {alone.inlined} {alone.notes}"
        yield str(placement)


def said(call: Callable[..., Any], *args: Any) -> str:
    """What a call returns, or the error."""
    try:
        return str(call(*args))
    except pt.PartitaError as error:
        return f"{type(error).__name__}: {error}"


def wished(rng: random.Random) -> Iterator[str]:
    """What would help most, by costs of quarters of a microsecond, and how the certificate shortens what it lists."""
    graph = graph_of(rng)
    with ExitStack() as stack:
        labels = devices_of(rng, stack)
        names = [node.name for node in graph.nodes if node.is_op]
        times = {label: {name: rng.randint(0, 9) / 4 for name in names} for label in LABELS}
        pairs = [(a, b) for a in (*LABELS, "host") for b in (*LABELS, "host") if a != b]
        costs = pt.Costs(times, {pair: pt.HandOver(rng.choice((0.0, 0.25)), 1024.0) for pair in pairs}, "drawn")
        placement = pt.place(graph, labels, costs=costs)
        yield f"{[str(wish) for wish in placement.wishes()]}"
        cut = [attrs.evolve(one, us=float(i)) for i, one in enumerate(placement.certificate.cut * 3)]
        cut[:1] = [attrs.evolve(one, bytes=None) for one in cut[:1]]
        for count in (0, 7, 8, 9, 12):
            predicted = rng.choice((0.0, 0.5, 10.0, 10.00001, 11.0))
            bounds = {"predicted_us": predicted, "bound_us": 0.25 if predicted == 0.5 else min(10.0, predicted)}
            made = attrs.evolve(placement.certificate, **bounds, cut=tuple(cut[:count]))
            yield f"{made.gap:.6f} {made}"


def locked(rng: random.Random) -> Iterator[str]:
    """A plan, and its differences from a graph that is a little different on devices that run other ops."""
    graph = graph_of(rng)
    with ExitStack() as stack:
        labels = devices_of(rng, stack)
        placement = pt.query(graph, labels, **rules_of(rng, graph), partial=True)
        plan = LockedPlan.of(placement)
        text = plan.to_json()
        again = LockedPlan.from_json(text, "here")
        yield f"{again == plan} {text == again.to_json()} {zlib.crc32(text.encode()):08x}"
        for label in rng.sample(LABELS, rng.randint(0, 2)):
            if label in labels:
                vars(pt.accelerator(label))["ops"] = frozenset(rng.sample(OPS, 7))
        other = changed(graph, rng)
        yield from plan.differences(other)
        applied = plan.apply(other)
        yield " ".join(f"{node.name}:{node.affinity}" for node in applied.nodes if node.is_op)
        plan.check_types(pt.apply_pass(applied, "InferShape"))


def changed(graph: pt.Graph, rng: random.Random) -> pt.Graph:
    """The graph with another height, another op, one op less, or as it is."""
    chance = rng.random()
    if chance < 0.3:
        return graph
    if chance < 0.5:
        types = {node.name: (5, 8) for node in graph.inputs}
        return pt.apply_pass(graph, "InferShape", shapes=types)
    if chance < 0.7:
        return pt.Graph([graph.outputs[-1]], name="less", opsets=graph.opsets)
    made = [pt.op("Sqrt", entry, name=f"last{i}") for i, entry in enumerate(graph.outputs)]
    return pt.Graph(made, name="more", opsets=graph.opsets)


def assigned(rng: random.Random, seed: int) -> Iterator[str]:
    numbers = np.random.default_rng(seed)
    one = problem(numbers, rng.randint(1, 14), rng.randint(2, 4), near=rng.choice((3, 9)))
    batch = np.stack([one.times, one.times * 2 + 1])
    assigner = Assigner(one)
    solved = [*assigner.solve(batch), assigner._expanded(one.times)]
    if one.times.shape[1] == 2:
        solved.append(cut(one.times, one.charges()))
    for each in solved:
        yield f"{each.chosen.tolist()} {one.cost(each.chosen):g} {each.bound:g}"


def fitted(rng: random.Random, seed: int) -> Iterator[str]:
    numbers = np.random.default_rng(seed)
    nodes, devices = rng.randint(2, 10), rng.randint(2, 3)
    one, shares = problem(numbers, nodes, devices), numbers.integers(0, 100, nodes).astype(float)
    floors = numbers.integers(0, 60, nodes).astype(float) if rng.random() < 0.5 else np.zeros(nodes)
    limits = np.where(numbers.random(devices) < 0.7, numbers.integers(60, max(65, 110 * nodes // devices), devices), np.inf)

    def used(chosen: Array) -> Array:
        tallest = np.zeros(devices)
        np.maximum.at(tallest, chosen, floors)
        return np.bincount(chosen, shares, devices) + tallest

    found = Fitting(one, shares, limits, used, floors=floors).search()
    if found.chosen is None:
        yield f"None, and nearest {found.nearest.tolist()}"
    else:
        yield f"{found.chosen.tolist()} {found.cost:g} {found.bound:.6g}"


def balanced(rng: random.Random, seed: int) -> Iterator[str]:
    """Assignments of several models to devices that work at the same time, of few parts and rounds too."""
    numbers = np.random.default_rng(seed)
    devices = rng.randint(2, 3)
    problems = [problem(numbers, rng.randint(1, 6), devices) for _ in range(rng.randint(1, 2))]
    busy = numbers.integers(0, 10, devices).astype(float)
    most, is_tight = float(numbers.integers(15, 40)), rng.random() < 0.2

    def solve(one: Any, earlier: Any) -> Any:
        limits = np.full(devices, most if is_tight else np.inf)
        shares = numbers.integers(0, 9, len(one.times)).astype(float)
        return Fitting(one, shares, limits, lambda chosen: np.bincount(chosen, shares, devices)).search()

    def fits(chosen: Any) -> bool:
        return len(chosen) < 2 or rng.random() < 0.9

    with (
        mock.patch.object(throughput, "MOST_PARTS", rng.choice((0, 3, 9))),
        mock.patch.object(throughput, "ROUNDS", rng.choice((1, 6))), mock.patch.object(throughput, "AGAIN", 3),
        mock.patch.object(throughput, "MOST_MOVED", rng.choice((3, 2000))),
        mock.patch.object(throughput, "EFFORT", rng.choice((9, 100))),
    ):
        _, factors = throughput.loads_of([throughput.Lane(str(device)) for device in range(devices)], len(problems))
        found = throughput.Balancing(problems, [solve] * len(problems), fits, busy, factors).search()
    if found is None:
        yield "None"
    else:
        yield f"{[one.tolist() for one in found.chosen]} {found.cost:g} {found.bound:.3g}"


KINDS: Mapping[str, Callable[[random.Random, int], Iterator[str]]] = {
    "place": lambda rng, seed: drawn(rng, False), "rules": lambda rng, seed: drawn(rng, True),
    "what if": lambda rng, seed: if_so(rng), "plan": lambda rng, seed: locked(rng), "assign": assigned, "fit": fitted,
    "query": lambda rng, seed: asked(rng), "file": lambda rng, seed: written(rng),
    "bytes": lambda rng, seed: held(rng), "wish": lambda rng, seed: wished(rng),
    "balance": balanced,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    kind, _, number = subject.rpartition(" ")
    told = []
    try:
        for part in KINDS[kind](random.Random(f"placement {subject}"), int(number)):
            told.append(part)
    except pt.PartitaError as error:
        told.append(f"{type(error).__name__}: {error}")
    return [f"{subject} | {line!r}" for line in told]


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
