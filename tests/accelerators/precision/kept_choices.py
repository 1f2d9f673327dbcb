"""Precisions of small drawn graphs: graphs lowered by drawn plans, the choices of `choose_precision` on the reference device and
on devices with a price list, ranges of drawn numbers, placements of drawn times, and tables and files of costs and choices.

Weights and inputs are small multiples of powers of two, so that their products are exact on any machine.

`python -m tests.accelerators.precision.kept_choices` writes the file that `test_kept_choices.py` compares with anew."""

from __future__ import annotations

import io
import itertools
import json
import random
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import partita as pt
from partita.accelerators.placement.locked import LockedPlan
from partita.accelerators.precision import measured_costs
from partita.accelerators.precision.auto import AutoChoice, AutoRow, _dearer
from partita.accelerators.precision.calibration import METHODS, calibrated
from partita.accelerators.precision.device_choice import DeviceChoice, bytes_of
from partita.accelerators.precision.lowered_ops import KEPT as PLAIN
from partita.accelerators.precision.lowered_ops import PRECISIONS, bytes_won, lowerable, lowered, moved_from, why_not
from partita.accelerators.precision.op_costs import PrecisionProbe, isolated
from partita.accelerators.precision.options import batches_of, locked_of
from partita.graph.types import Array
from partita.passes.infer import infer
from tests.accelerators.precision.priced_devices import Prices, priced
from tests.kept import told, write_kept

KEPT = Path(__file__).with_name("kept_choices.txt")

COUNTS = {
    "lower": 60, "calibrate": 20, "place": 40, "choose": 16, "devices": 10, "probe": 10, "cost": 8, "auto": 12, "asked": 1,
    "contest": 20, "turns": 10,
}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]


class Drawn:
    """A drawn graph of products, with the numbers that it needs."""

    def __init__(self, rng: random.Random, affinities: Sequence[str] = (), opset: int | None = None) -> None:
        self.rng = rng
        self.random = np.random.default_rng(rng.randrange(10**6))
        self.affinities = affinities
        image = rng.random() < 0.4
        self.shape = (1, 4, 4, 4) if image else (4, 8)
        x = pt.variable("x", "float32", self.shape)
        values: list[Any] = [x]
        for number in range(rng.randint(2, 5)):
            make = self.of_image if image else self.of_matrix
            values.append(make(rng.choice(values[-2:]), number))
        opsets = {"": opset or rng.choice((12, 13, 17, 21, 22))}
        self.graph = pt.Graph([values[-1], *rng.sample(values[1:], 1)], [x], "drawn", opsets)
        self.typed = infer(self.graph, strict=False)

    def constant(self, *shape: int, name: str = "") -> pt.Node:
        array = self.random.integers(-16, 17, shape).astype(np.float32) / 16
        if self.rng.random() < 0.1:
            array *= 0
        return pt.constant(array.astype(np.float64) if self.rng.random() < 0.02 else array, name)

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> pt.Node:
        node = pt.op(kind, *inputs, **attributes)
        return node.evolve(affinity=self.rng.choice(self.affinities)) if self.affinities else node

    def of_matrix(self, value: Any, number: int) -> Any:
        kind = self.rng.choice(("MatMul",) * 4 + ("Gemm",) * 4 + ("Relu", "Add", "turned", "moved"))
        name = f"{kind.lower()}{number}"
        if kind == "MatMul":
            return self.op("MatMul", value, self.constant(8, 8), name=name)
        if kind == "Gemm":
            options = {key: 1 for key in ("transB",) if self.rng.random() < 0.5}
            biases = ((), (), (self.constant(8),), (self.constant(1, 8),), (value,))
            scaled = {"alpha": 2.0} if self.rng.random() < 0.1 else {}
            return self.op("Gemm", value, self.constant(8, 8), *self.rng.choice(biases), name=name, **options, **scaled)
        if kind == "turned":
            turned = self.op("Transpose", value, perm=[1, 0], name=f"{name}a")
            return self.op("Transpose", turned, perm=[1, 0], name=f"{name}b")
        if kind == "moved":
            flat = self.op("Reshape", value, pt.constant(np.array([-1])), name=f"{name}a")
            return self.op("Reshape", flat, pt.constant(np.array([4, 8])), name=f"{name}b")
        return self.op(kind, *[value] * (2 if kind == "Add" else 1), name=name)

    def of_image(self, value: Any, number: int) -> Any:
        kind = self.rng.choice(("Conv",) * 5 + ("Relu", "MaxPool", "Add"))
        name = f"{kind.lower()}{number}"
        if kind == "Conv":
            size, group = self.rng.choice(((1, 1), (3, 1), (3, 2)))
            bias = (self.constant(4),) if self.rng.random() < 0.6 else ()
            weight = self.constant(4, 4 // group, size, size)
            return self.op("Conv", value, weight, *bias, name=name, pads=[size // 2] * 4, group=group)
        if kind == "MaxPool":
            return self.op("MaxPool", value, kernel_shape=[3, 3], pads=[1, 1, 1, 1], name=name)
        return self.op(kind, *[value] * (2 if kind == "Add" else 1), name=name)

    def inputs(self, count: int) -> list[Array]:
        return [self.random.integers(-16, 17, self.shape).astype(np.float32) / 8 for _ in range(count)]


def text_of(graph: pt.Graph) -> str:
    """A sum over the text of a graph and its constants."""
    arrays = b"".join(node.name.encode() + np.asarray(node.value).tobytes() for node in graph.nodes if node.value is not None)
    affinities = " ".join(f"{node.name}:{node.affinity}" for node in graph.nodes if node.affinity)
    ops = " ".join(str(node.op) for node in graph.nodes if node.is_op)
    return f"{ops} | {affinities} | {zlib.crc32(str(graph).encode()):08x} {zlib.crc32(arrays):08x}"


def lower(rng: random.Random) -> Iterator[str]:
    """What a drawn plan makes of a graph."""
    drawn = Drawn(rng, rng.choice(((), (), ("left", "right"), ("left", "right", None))))  # type: ignore[arg-type]
    graph = drawn.typed
    able = lowerable(graph)
    for node in able:
        refusals = {precision: why_not(node, precision, graph.opset) for precision in PRECISIONS}
        moved = [entry.name for entry in moved_from(node.reads[0])]
        yield f"{node.name} {moved} {[bytes_won(node, one) for one in PRECISIONS]} {[k for k, why in refusals.items() if why]}"
    taken = {
        node.name: rng.choice([one for one in (*PRECISIONS, PLAIN, "int8") if why_not(node, one, graph.opset) is None])
        for node in able
    }
    entries = [entry for node in graph.nodes for entry in node.outputs]
    ranges = {entry.name: (rng.choice((0.0, -1.0, -0.3)), rng.choice((0.0, 2.0, 7.7))) for entry in entries}
    yield f"{taken} {text_of(infer(lowered(graph, taken, ranges), strict=False))}"


def calibrate(rng: random.Random) -> Iterator[str]:
    """The ranges of drawn numbers, by each method."""
    random = np.random.default_rng(rng.randrange(10**6))
    size, spread = rng.choice((5, 300, 4000)), rng.choice((0.0, 0.0, 3.0, 40.0))
    numbers = np.round(random.standard_normal((2, size)) * 64 + 4096 * spread * (random.random((2, size)) < 0.001)) / 64
    if rng.random() < 0.4:
        numbers = np.abs(numbers) if rng.random() < 0.5 else -np.abs(numbers)
    numbers[0, 0] = rng.choice((0.0, np.nan, np.inf))
    for method in METHODS:
        ranges = calibrated(lambda: [{"a": numbers[0], "zero": np.zeros(3)}, {"a": numbers[1]}], method)
        yield f"{method} { {name: tuple(round(end, 6) for end in ends) for name, ends in ranges.items()} }"


def place(rng: random.Random) -> Iterator[str]:
    """Placements of drawn times by hand-overs, the best first."""
    graph = Drawn(rng).typed
    labels = ["a", "b", "c"][: rng.randint(2, 3)]
    names = [node.name for node in graph.nodes if node.is_op]
    allowed = {name: rng.sample(labels, rng.randint(1, len(labels))) for name in names if rng.random() < 0.9}
    times = {
        (label, precision): {name: float(rng.randint(0, 90)) for name in names if rng.random() < 0.93}
        for label in labels for precision in (PLAIN, "int8")
    }
    choice = DeviceChoice(graph, allowed, times)
    precisions = {name: "int8" for name in allowed if rng.random() < 0.3}
    tensor = pt.TensorType("float32", ("n", 3))
    kinds = [pt.TensorType("float32", None), tensor, pt.SequenceType(tensor), None]
    yield str([bytes_of(pt.variable("odd", type=kind)[0]) for kind in kinds])
    yield f"{[(entry.name, bytes_of(entry)) for node in graph.nodes for entry in node.outputs]}"
    yield f"{[(name, choice.least(name, precisions.get(name, PLAIN))) for name in allowed]}"
    for placement in choice.candidates(precisions):
        yield f"{placement} {choice.estimate(placement, precisions):.6g}"


def plan_lines(plan: pt.PrecisionPlan, graph: pt.Graph, apply: bool) -> Iterator[str]:
    yield str(plan)
    yield from (plan.why(name) for name in plan)
    ranges = {name: [round(end, 3) for end in ends] for name, ends in plan.ranges.items()}
    yield f"{ranges} {plan.unit} {plan.locked} {plan.placement} {plan.pinned}"
    table = shown(plan)
    yield f"{zlib.crc32(table.encode()):08x} {len(table.splitlines())}"
    again = pt.PrecisionPlan.from_json(plan.to_json())
    yield f"{again.to_json() == plan.to_json()} {str(again) == str(plan)} {[again.why(name) == plan.why(name) for name in plan]}"
    if len(plan):
        name, *others = plan
        again[name] = "float32"
        yield f"{again.error} {again.locked} {again.why(name)} {again.rows[0]} {again}"
        yield f"{pt.PrecisionPlan.from_json(again.to_json()).error}"
        again.lock(*others[:1])
        yield str(again.locked)
        again.lock()
        yield f"{again.locked} {again!r}"
    for do in (again.__getitem__, again.__delitem__, again.lock):
        yield told(do, "nothing")
    yield f"{told(again.place, 'nothing', 'one')} {told(again.place, next(iter(plan.placement), ''), 'two')} {again.pinned}"
    if apply:
        applied = plan.apply(graph)
        yield " ".join(f"{node.op}{'' if node.affinity is None else ':' + node.affinity}" for node in applied.nodes if node.is_op)


def shown(thing: Any) -> str:
    """A table as a wide terminal shows it."""
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(thing)
    return out.getvalue()


def options_of(rng: random.Random, drawn: Drawn) -> dict[str, Any]:
    options: dict[str, Any] = {"precisions": tuple(rng.sample(PRECISIONS, rng.randint(1, 2)))}
    names = [node.name for node in lowerable(drawn.typed)]
    if names and rng.random() < 0.4:
        options["lock"] = {rng.choice((rng.choice(names), "m.*|g.*|c.*")): rng.choice((PLAIN, "f16"))}
    if rng.random() < 0.3:
        options["most"] = rng.randint(1, 2)
    return options


def choose(rng: random.Random) -> Iterator[str]:
    """The choice by bytes on the reference device."""
    drawn = Drawn(rng)
    options = options_of(rng, drawn)
    tolerance = rng.choice((0.0, 0.003, 0.02, 0.03, 0.3))
    inputs = drawn.inputs(rng.randint(1, 3))
    calibration = rng.choice(METHODS)
    graph = drawn.graph
    plan = pt.choose_precision(graph, inputs, tolerance, "reference", win="memory", calibration=calibration, **options)
    yield f"{tolerance} {options}"
    yield from plan_lines(plan, graph, True)


def devices(rng: random.Random) -> Iterator[str]:
    """The choice by time on devices that say what they took."""
    drawn = Drawn(rng, opset=22)
    kinds = ("MatMul", "Gemm", "Conv", "Relu", "Add")
    prices = {
        label: Prices(
            {kind: float(rng.randint(20, 400)) for kind in kinds},
            {kind: float(rng.randint(5, 200)) for kind in kinds if rng.random() < 0.7},
            {kind: f"{label} has no {kind}" for kind in kinds if rng.random() < 0.1},
        )
        for label in ("one", "two")
    }
    with pytest.MonkeyPatch.context() as patch, priced(patch, **prices) as labels:
        options = options_of(rng, drawn)
        if rng.random() < 0.4:
            options["pin"] = {".*0.*": rng.choice(("one", "two"))}
        if rng.random() < 0.3:
            options["forbid"] = {"Relu": "one"}
        devices = rng.choice((labels, f"{labels},reference", f"{labels},reference", "HETERO:one,reference"))
        plan = pt.choose_precision(drawn.graph, drawn.inputs(2), rng.choice((0.01, 0.1, 1.0)), devices, **options)
        yield f"{devices} {options}"
        yield from plan_lines(plan, drawn.graph, True)


def probe(rng: random.Random) -> Iterator[str]:
    """The graphs that are run to measure errors."""
    graph = Drawn(rng, opset=22).typed
    ops = lowerable(graph)
    made = PrecisionProbe(graph, ops)
    yield f"{made.shifts} {made.reads} {made.seen} {[*made.still]} {made.graph.output_names}"
    yield text_of(made.graph)
    ranges = {entry.name: (-1.0, 2.0) for node in graph.nodes for entry in node.outputs}
    for precision in PRECISIONS:
        some = [node for node in ops if why_not(node, precision, graph.opset) is None]
        if some:
            yield f"{precision} {text_of(isolated(graph, some, precision, ranges))}"


def cost(rng: random.Random) -> Iterator[str]:
    """The costs that are measured by a clock that goes as drawn."""
    drawn = Drawn(rng)
    kinds = ("MatMul", "Gemm", "Conv", "Relu", "Add", "Transpose", "Reshape", "MaxPool")
    prices = {
        label: Prices({kind: float(rng.randint(1, 40)) for kind in kinds}, refused={"Relu": "no"} if label == "two" else {},
                      fused=rng.random() < 0.5)
        for label in ("one", "two", "three")[: rng.randint(1, 3)]
    }
    microseconds = itertools.count(1000, 37)

    def in_turns(calls: Sequence[Callable[[], Any]], seconds: float, times_more: int = 1) -> list[list[float]]:
        for call in calls:
            call()
        return [[float(next(microseconds) * rng.randint(1, 9)) for _ in range(3)] for _ in calls]

    def of_units(self: Any, model: pt.CompiledModel, batch: Any) -> tuple[dict[str, float], float]:
        times = {unit.name: float(rng.randint(100, 900)) for unit in model.units}
        return times, sum(times.values()) + rng.randint(0, 40)

    with pytest.MonkeyPatch.context() as patch, priced(patch, **prices) as labels:
        patch.setattr(measured_costs, "in_turns", in_turns)
        patch.setattr(measured_costs, "processor", lambda: "a clock")
        patch.setattr(measured_costs._OnThisMachine, "_of_units", of_units)
        busy = rng.random() < 0.2
        patch.setattr(measured_costs, "usable_cores", lambda: 0)
        costs = pt.measure(drawn.graph, labels, busy=busy, again=True, config={"one": {"CACHE_DIR": "off"}})
        yield str(costs)
        yield json.dumps(json.loads(costs.to_json(), parse_float=lambda text: round(float(text), 3)))
        yield shown(costs)
        yield str(_dearer(costs, [*prices, "other"], 10.0))


def auto(rng: random.Random) -> Iterator[str]:
    """A choice of drawn placements as text, table and file."""
    graph = Drawn(rng).typed
    plan = LockedPlan.of(pt.query(graph, "reference"))
    rows = tuple([
        AutoRow(f"row {i}", {"one": i, "two": 1}, rng.choice((0.0, 1234.5)), us, round(us / 700, 3), "" if us else "late")
        for i, us in enumerate(rng.choice((0.0, 812.25, 31.0)) for _ in range(rng.randint(1, 4)))
    ])
    choice = AutoChoice("drawn", rows, rng.randrange(len(rows)), "it is so", plan, 2.5, rng.random() < 0.5)
    yield str(choice)
    yield shown(choice)
    yield json.dumps(choice.to_dict())
    text = choice.to_json().encode()
    yield f"{AutoChoice.from_json(text, 'drawn') == choice}"
    content = json.loads(text)
    changes: tuple[dict[str, Any], ...] = ({"chosen": len(rows)}, {"chosen": -1}, {"rows": 3}, {"plan": "{}"}, {"is_short": 0})
    content.update(rng.choice(changes))
    yield str(AutoChoice.from_json(json.dumps(content).encode(), "drawn"))


def contest(rng: random.Random) -> Iterator[str]:
    """The choice of `auto` by a clock that goes as drawn, within a budget or beyond it."""
    drawn = Drawn(rng)
    kinds = ("MatMul", "Gemm", "Conv", "Relu", "Add", "Transpose", "Reshape", "MaxPool")
    prices = {
        label: Prices({kind: float(rng.randint(1, 90)) for kind in kinds}, refused={"Relu": "no"} if rng.random() < 0.3 else {})
        for label in ("one", "two", "three")[: rng.randint(2, 3)]
    }
    step, now = rng.choice((0.0, 0.0, 0.0, 0.9, 2.5)), itertools.count()

    def in_turns(calls: Sequence[Callable[[], Any]], seconds: float, times_more: int = 1) -> list[list[float]]:
        return [[float(rng.randint(60, 140)) for _ in range(3)] for _ in calls]

    def measured(base: Any, target: Any, batch: Any, labels: Any, busy: bool, again: bool, *options: Any) -> pt.Costs | None:
        if rng.random() < 0.15:
            return None
        times = {label: {name: float(rng.randint(1, 50)) for name in base if rng.random() < 0.93} for label in labels}
        pairs = [(a, b) for a in labels for b in labels if a != b and rng.random() < 0.7]
        return pt.Costs(times, {pair: pt.HandOver(float(rng.randint(0, 9)), 64.0) for pair in pairs}, "drawn")

    with pytest.MonkeyPatch.context() as patch, priced(patch, **prices) as labels:
        place = "partita.accelerators.precision.auto"
        patch.setattr(f"{place}.in_turns", in_turns)
        patch.setattr(f"{place}.measured", measured)
        patch.setattr(f"{place}.perf_counter", lambda: step * next(now))
        rules = rng.choice(({}, {}, {"pin": {".*1.*": "one"}}, {"forbid": {"Add": "two"}}))
        inputs = rng.choice((None, drawn.inputs(1)[0]))
        config = {"one": {"CACHE_DIR": "off"}}
        labels = rng.choice((labels, f"{labels},reference"))
        choice = pt.auto(drawn.graph, labels, inputs=inputs, config=config, seconds=20, again=True, progress=False, **rules)
        yield f"{step} {rules} {labels}"
        yield str(choice)
        yield json.dumps(json.loads(json.dumps(choice.to_dict()), parse_float=lambda text: round(float(text), 3)))
        yield f"{ {name: node.device for name, node in choice.plan.nodes.items()} }"


def turns(rng: random.Random) -> Iterator[str]:
    """The calls that are measured in turns, by a clock that each call moves on."""
    now, calls = [0.0], list[int]()

    def call(number: int) -> None:
        calls.append(number)
        now[0] += (number + 1) / 8

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_costs, "perf_counter", lambda: now[0])
        several = [partial(call, number) for number in range(rng.randint(1, 3))]
        taken = measured_costs.in_turns(several, rng.choice((0.0, 0.25, 0.75, 1.5, 3.0, 100.0)), rng.randint(1, 2))
    yield f"{calls[:12]} {len(calls)} {[(one[:2], len(one)) for one in taken]}"


def asked(rng: random.Random) -> Iterator[str]:
    """What is said of arguments that make no sense, or little."""
    x, y = (pt.variable(name, "float32", (2, 8)) for name in "xy")
    w = pt.constant(np.ones((8, 8), np.float32))
    product = pt.op("MatMul", pt.op("Add", x, y, name="sum"), w, name="product")
    graph = infer(pt.Graph([pt.op("MatMul", product, w, name="product2")], [x, y], "two"), strict=False)
    one, other = np.ones((2, 8), "f"), np.zeros((3, 8), "f")
    calls: list[Any] = [
        (one, one), [(one, one)], {"x": one, "y": one}, one, (one,), (one, one, one), {"x": one}, {"x": one, "y": one, "z": one},
        [], [(one, one), (other, one)], [(one, one), {"y": one, "x": one}],
    ]
    for call in calls:
        yield told(lambda it: [{name: a.shape for name, a in batch.items()} for batch in batches_of(graph, it, "asked")], call)
    locks: list[Any] = [
        {}, {"product": "int8"}, {"product.*": "f16"}, {"sum": "int8"}, {"producd": "int8"}, {"product(": "int8"},
        {"product": "int3"}, {"product.*": "f16", "product": "bf16"}, {1: "int8"}, 5,
    ]
    for lock in locks:
        yield told(locked_of, graph, lock)
    options: list[dict[str, Any]] = [
        {"tolerance": 0}, {"tolerance": -1}, {"tolerance": np.float32(0.5)}, {"tolerance": True}, {"most": 1}, {"most": 0},
        {"most": 1.5}, {"win": "speed"}, {"calibration": "minmaxx"}, {"precisions": ["int8", "int9"]}, {"precisions": []},
        {"pin": {"product": "reference"}}, {"forbid": {"MatMul": "reference"}}, {"lock": {"product": "int4-weights"}},
    ]
    for option in options:
        yield told(lambda given: pt.choose_precision(graph, (one, one), device="reference", **{"win": "memory", **given}), option)


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "lower": lower, "calibrate": calibrate, "place": place, "choose": choose, "devices": devices, "probe": probe, "cost": cost,
    "auto": auto, "contest": contest, "turns": turns, "asked": asked,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    kind = subject.rpartition(" ")[0]
    said: list[str] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for part in KINDS[kind](random.Random(f"precision {subject}")):
                said.append(part)
        except pt.PartitaError as error:
            said.append(f"{type(error).__name__}: {error}")
    return [f"{subject} | {line!r}" for line in said]


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
