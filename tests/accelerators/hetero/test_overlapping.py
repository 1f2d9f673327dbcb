"""Devices that work on their own, while the processor does other things."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators import CompiledSubgraph
from partita.accelerators.errors import RunError
from partita.accelerators.interface.accelerator import Turn
from partita.accelerators.process.exit_barrier import door
from partita.accelerators.runtime.executor import Executor
from partita.accelerators.runtime.steps import begun_early, ends_of, overlapping
from partita.graph.interpret import interpret
from tests.accelerators.hetero.small_devices import device

X, Y = (np.random.default_rng(seed).standard_normal(4).astype("float32") for seed in (1, 2))


def written(outputs: list[Any], out: Sequence[Any]) -> list[Any]:
    """The outputs, in the arrays meant for them where there are any."""
    for i, target in enumerate(out):
        if target is not None:
            target[...] = outputs[i]
            outputs[i] = target
    return outputs


class LateTurn(Turn):
    """Reads its inputs and writes its outputs when it is finished, and not before: what is read too early is NaN, and so is what
    is read from memory that has become another value's."""

    def __init__(self, subgraph: Late) -> None:
        self.subgraph, self.is_over = subgraph, False
        self.inputs: list[Any] = [None] * len(subgraph.graph.inputs)
        self.out: Sequence[Any] = ()

    def send(self, number: int, array: Any) -> None:
        self.note("send", number)
        self.inputs[number] = array

    def begin(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> None:
        self.note("begin")
        self.inputs, self.out = list(inputs), out or ()
        for target in self.out:
            if target is not None:
                target[...] = np.nan

    def finish(self) -> Sequence[Any]:
        self.note("finish")
        outputs = written(interpret(self.subgraph.graph, self.inputs), self.out)
        self.end()
        return outputs

    def give_up(self) -> None:
        if not self.is_over:
            self.note("give up")
            self.end()

    def end(self) -> None:
        self.is_over = True
        self.subgraph.lock.release()

    def note(self, what: str, *rest: Any) -> None:
        self.subgraph.notes.append((what, self.subgraph.name, *rest))


class Late(CompiledSubgraph):
    """A subgraph of a device that works on its own."""

    overlaps = True
    notes: list[Any] = []

    def __init__(self, graph: pt.Graph) -> None:
        self.graph, self.lock = graph, threading.Lock()
        self.name = next(node.name for node in graph.nodes if node.is_op)

    def turn(self, waits: bool = True) -> LateTurn | None:
        return LateTurn(self) if self.lock.acquire(blocking=waits) else None

    def run(self, inputs: Sequence[Any], out: Any = None) -> Any:
        self.notes.append(("run", self.name))
        return interpret(self.graph, inputs)


class Now(CompiledSubgraph):
    """A subgraph of the processor's."""

    concurrent = True
    hook: Callable[[str], None] | None = None

    def __init__(self, graph: pt.Graph) -> None:
        self.graph = graph
        self.name = next(node.name for node in graph.nodes if node.is_op)

    def run(self, inputs: Sequence[Any], out: Any = None) -> Any:
        Late.notes.append(("run", self.name))
        if Now.hook is not None:
            Now.hook(self.name)
        return written(interpret(self.graph, inputs), out or ())


@contextmanager
def devices() -> Iterator[list[Any]]:
    """The devices `late` and `now`, and what is asked of them."""
    Late.notes, Now.hook = [], None
    with device("late", subgraph_type=Late), device("now", subgraph_type=Now):
        yield Late.notes


def compiled(graph: pt.Graph, where: dict[str, str], **config: Any) -> pt.CompiledModel:
    for node in graph.nodes:
        if node.is_op:
            node.affinity = where[node.name]
    return pt.compile(graph, "HETERO:late,now", config={"HETERO": {"PARALLEL": False, **config}})


def variables() -> tuple[Any, Any]:
    return pt.variable("x", "float32", (4,)), pt.variable("y", "float32", (4,))


def side_by_side() -> pt.Graph:
    """The device works on `a` while the processor works on `b`; then `c` reads of `a`."""
    x, y = variables()
    last = pt.op("Relu", pt.op("Neg", x, name="a"), name="c")
    return pt.Graph([last, pt.op("Abs", y, name="b")], name="net", inputs=[x, y])


def check(model: pt.CompiledModel) -> None:
    last, second = model(X, Y)
    np.testing.assert_array_equal(last, np.maximum(-X, 0))
    np.testing.assert_array_equal(second, np.abs(Y))


ASIDE = {"a": "late", "b": "now", "c": "now"}


def test_a_device_is_waited_for_where_its_outputs_are_read() -> None:
    with devices() as notes:
        model = compiled(side_by_side(), ASIDE)
        check(model)
        assert notes == [("begin", "a"), ("run", "b"), ("finish", "a"), ("run", "c")]


def test_a_device_begins_before_what_it_does_not_wait_for() -> None:
    """The processor computes first what the device waits for, then the rest."""
    x, y = variables()
    long, short = pt.op("Abs", y, name="long"), pt.op("Relu", x, name="short")
    graph = pt.Graph([long, pt.op("Neg", short, name="a")], name="net", inputs=[x, y])
    with devices() as notes:
        model = compiled(graph, {"long": "now", "short": "now", "a": "late"})
        np.testing.assert_array_equal(model(X, Y)[1], -np.maximum(X, 0))
        assert len(model.units) == 3
        assert notes == [("run", "short"), ("begin", "a"), ("run", "long"), ("finish", "a")]


def test_an_input_that_is_there_early_is_sent_early() -> None:
    x, y = variables()
    graph = pt.Graph([pt.op("Add", x, pt.op("Abs", y, name="b"), name="a")], name="net", inputs=[x, y])
    with devices() as notes:
        model = compiled(graph, {"b": "now", "a": "late"})
        np.testing.assert_array_equal(model(X, Y)[0], X + np.abs(Y))
        assert notes == [("send", "a", 0), ("run", "b"), ("begin", "a"), ("finish", "a")]


def test_what_a_device_reads_stays_until_it_is_done() -> None:
    """The processor's second value does not go to the place of its first one, which the device still reads."""
    x, y = variables()
    ops = [pt.op("Neg", pt.op("Abs", x, name="b"), name="a"), pt.op("Neg", pt.op("Relu", y, name="d"), name="c")]
    with devices() as notes:
        model = compiled(pt.Graph(ops, name="net", inputs=[x, y]), {"a": "late", "b": "now", "c": "late", "d": "now"})
        first, second = model(X, Y)
        assert notes.index(("begin", "a")) < notes.index(("run", "d")) < notes.index(("finish", "a"))
        np.testing.assert_array_equal(first, -np.abs(X))
        np.testing.assert_array_equal(second, -np.maximum(Y, 0))


def test_looked_at_step_by_step_they_come_one_after_the_other() -> None:
    with devices() as notes:
        model = compiled(side_by_side(), ASIDE)
        with model.timeline() as timeline:
            model(X, Y)
        assert {note[0] for note in notes} == {"run"} and len(timeline.laps) == 3
        model.profile(X, Y)
        assert {note[0] for note in notes} == {"run"}


def test_after_an_error_of_the_processors_the_device_is_waited_for() -> None:
    def fail(name: str) -> None:
        raise ValueError("no")

    with devices() as notes:
        model = compiled(side_by_side(), ASIDE)
        Now.hook = fail
        with pytest.raises(RunError, match="ValueError: no"):
            model(X, Y)
        assert notes == [("begin", "a"), ("run", "b"), ("give up", "a")]
        Now.hook = None
        check(model)


def test_an_error_of_the_devices_says_where_and_the_next_call_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("begin", "finish"):
        with devices(), monkeypatch.context() as patch:
            model = compiled(side_by_side(), ASIDE)

            def fail(self: LateTurn, *rest: Any) -> Any:
                self.end()
                raise ValueError("broken")

            patch.setattr(LateTurn, method, fail)
            with pytest.raises(RunError, match="on 'late': ValueError: broken"):
                model(X, Y)
            patch.undo()
            check(model)


@pytest.mark.parametrize("method", ["begin", "finish"])
def test_a_call_that_the_user_ends_leaves_no_turn_behind(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the device nor the end of the interpreter waits for it."""
    with devices():
        model = compiled(side_by_side(), ASIDE)

        def end(self: LateTurn, *rest: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(LateTurn, method, end)
            with pytest.raises(KeyboardInterrupt):
                model(X, Y)
        assert threading.get_ident() not in door.inside
        check(model)


def two_turns() -> pt.Graph:
    """Two subgraphs of the device, of which the second one's input is there at once."""
    x, y = variables()
    first = pt.op("Neg", pt.op("Abs", x, name="b"), name="a")
    second = pt.op("Sub", y, pt.op("Abs", pt.op("Relu", first, name="d"), name="e"), name="z")
    return pt.Graph([second, pt.op("Exp", first, name="f")], name="net", inputs=[x, y])


TWO = {"b": "now", "a": "late", "d": "now", "e": "now", "z": "late", "f": "now"}


def test_a_call_that_waits_for_a_turn_lets_go_of_its_own() -> None:
    """One call has sent an input to the second subgraph, and comes to the first one while another call is at that."""
    with devices() as notes:
        model = compiled(two_turns(), TWO)
        wanted = pt.compile(two_turns(), "reference")(X, Y)
        first = next(unit for unit in model.units if unit.body.nodes[-1].name == "a" or unit.compiled.name == "a")  # type: ignore[attr-defined]
        turn = first.compiled.turn()
        assert turn is not None
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(model, X, Y)
            while ("give up", "z") not in notes:
                assert not call.done()
            turn.give_up()
            for result, exact in zip(call.result(60), wanted, strict=True):
                np.testing.assert_array_equal(result, exact)


def test_many_calls_at_once_are_right_and_none_waits_for_ever() -> None:
    with devices():
        model, reference = compiled(two_turns(), TWO), pt.compile(two_turns(), "reference")
        inputs = [(X * i, Y / (i + 1)) for i in range(40)]
        with ThreadPoolExecutor(8) as pool:
            for (x, y), outputs in zip(inputs, pool.map(lambda one: list(model(*one)), inputs, timeout=300), strict=True):
                for result, exact in zip(outputs, reference(x, y), strict=True):
                    np.testing.assert_array_equal(result, exact)


def test_a_subgraph_that_two_steps_run_does_not_overlap() -> None:
    with devices():
        model = compiled(two_turns(), TWO)
        executor = model.runs
        assert isinstance(executor, Executor)
        steps = list(executor.plan.steps)
        assert sum(overlapping(steps)) == 2
        assert sum(overlapping([*steps, *steps])) == 0


@st.composite
def nets(draw: st.DrawFn) -> tuple[pt.Graph, dict[str, str]]:
    """A graph of some ops, each on one of the two devices."""
    x, y = variables()
    values, where = [x, y], {}
    for i in range(draw(st.integers(2, 14))):
        one, other = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        name, kind = f"n{i}", draw(st.sampled_from(["Add", "Sub", "Neg", "Abs"]))
        values.append(pt.op(kind, *((one, other) if kind in ("Add", "Sub") else (one,)), name=name))
        where[name] = draw(st.sampled_from(["late", "now"]))
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3))
    graph = pt.Graph(outputs, name="net", inputs=[x, y])
    return graph, {node.name: where[node.name] for node in graph.nodes if node.is_op}


@settings(max_examples=80)
@given(nets(), st.booleans())
def test_whatever_overlaps_the_outputs_are_the_same(drawn: tuple[pt.Graph, dict[str, str]], into: bool) -> None:
    """No value is read before it is there, and no buffer is another value's while a device works on it."""
    graph, where = drawn
    wanted = pt.compile(graph, "reference")(X, Y)
    with devices():
        model = compiled(graph, where, PARALLEL=False)
        for _ in range(2):
            out = [np.full(4, np.nan, "float32") for _ in wanted] if into else None
            for result, exact in zip(model(X, Y, out=out), wanted, strict=True):
                np.testing.assert_array_equal(result, exact)


class Ordered:
    """A step that reads and fills slots."""

    def __init__(self, reads: tuple[int, ...], makes: tuple[int, ...]) -> None:
        self.reads, self.makes = reads, makes


def test_the_order_keeps_what_a_step_needs_before_it() -> None:
    steps = [Ordered((0,), (1,)), Ordered((0,), (2,)), Ordered((2,), (3,)), Ordered((3, 1), (4,))]
    overlaps = [False, False, True, False]
    ordered = begun_early(steps, overlaps)
    assert [steps.index(step) for step in ordered] == [1, 2, 0, 3]
    assert ends_of(ordered, [False, True, False, False]) == {1: 3}
