"""PlanMemory: values that are alive at the same time never share a byte."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.graph import Graph, PassError, op, variable
from partita.passes import MemoryPlan, apply_pass

from .before_after import text


def plan_of(g: Graph, **options: int) -> MemoryPlan:
    return apply_pass(g, ["InferShape", "PlanMemory"], PlanMemory=options).attrs["memory_plan"]


def test_a_chain_needs_two_values_at_a_time() -> None:
    plan = plan_of(
        text("graph net(x: float32[16]) -> (d) { a = Relu(x)\n b = Neg(a)\n c = Abs(b)\n d = Exp(c) }")
    )
    assert (plan.peak, plan.naive, plan.at_once) == (128, 256, 128)
    assert plan.offsets == {"a": 0, "b": 64, "c": 0, "d": 64}
    assert str(plan) == "peak 128 bytes of 256 (50%), 4 values"


def test_outputs_stay_and_inputs_and_constants_are_not_planned() -> None:
    plan = plan_of(
        text("graph net(x: float32[16]) -> (a, c) { a = Relu(x)\n k = const float32[1] [1]\n b = Add(a, k)\n c = Neg(b) }")
    )
    assert plan.offsets.keys() == {"a", "b", "c"} and plan.offsets["a"] not in (plan.offsets["b"], plan.offsets["c"])


def test_unknown_sizes_are_listed() -> None:
    plan = plan_of(text("graph net(x: float32[N, 16], y: float32[1]) -> (a, b) { a = Relu(x)\n b = Neg(y) }"))
    assert plan.unknown == ("a",) and plan.offsets.keys() == {"b"}


def test_bodies_need_room_while_they_run() -> None:
    plan = plan_of(
        text(
            """
            func body(z: float32[16]) -> (r) {
              a = Relu(z)
              b = Neg(a)
              r = Exp(b)
            }
            graph net(x: float32[16]) -> (y, z) {
              y = call body(x)
              z = call body(y)
            }
            """
        )
    )
    assert plan.workspaces == {"y": (64, 128), "z": (128, 128)} and plan.peak == 256


def test_the_alignment() -> None:
    g = text("graph net(x: uint8[3]) -> (a, b) { a = Identity(x)\n b = Neg(a) }".replace("Neg", "Identity"))
    assert plan_of(g, alignment=1).sizes == {"a": 3, "b": 3}
    assert plan_of(g, alignment=16).sizes == {"a": 16, "b": 16}
    with pytest.raises(PassError, match="the alignment is a positive number of bytes, not 0"):
        plan_of(g, alignment=0)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Sums of earlier values, each of a size of its own."""
    values = [variable("x", "float32", (1,))]
    for i in range(draw(st.integers(1, 25))):
        read = [values[draw(st.integers(max(0, len(values) - 6), len(values) - 1))] for _ in range(draw(st.integers(1, 3)))]
        values.append(op("Concat", *read, axis=0, name=f"v{i}"))
    outputs = draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=3, unique=True))
    return Graph(outputs)


@given(graphs())
def test_no_two_live_values_overlap(g: Graph) -> None:
    plan = plan_of(g, alignment=1)
    last = {entry: i for i, node in enumerate(g.nodes) for entry in node.reads}
    last.update(dict.fromkeys(g.outputs, len(g.nodes)))
    spans = {}
    for i, node in enumerate(g.nodes):
        if node.is_op:
            start = plan.offsets[node.name]
            spans[node.name] = (i, last.get(node[0], i), start, start + plan.sizes[node.name])
    for a, b in combinations(spans.values(), 2):
        alive_together = a[0] <= b[1] and b[0] <= a[1]
        assert not (alive_together and a[2] < b[3] and b[2] < a[3])
    alive = [sum(plan.sizes[name] for name, (a, b, *_) in spans.items() if a <= i <= b) for i, _, *_ in spans.values()]
    assert list(plan.alive.items()) == list(zip(spans, alive, strict=True)) and plan.at_once == max(alive, default=0)
    assert plan.at_once <= plan.peak <= plan.naive
    assert plan.peak == max((end for *_, end in spans.values()), default=0)


def test_it_prints_on_one_short_line() -> None:
    g = text("graph net(x: float32[8]) -> (y) { a = Relu(x)\n y = Neg(a) }")
    plan = apply_pass(g, ["InferShape", "PlanMemory"]).attrs["memory_plan"]
    assert str(plan) == "peak 128 bytes of 128 (100%), 2 values"
    assert repr(plan) == "MemoryPlan(peak=128, naive=128, at_once=128, unknown=())"
