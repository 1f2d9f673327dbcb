"""Requests that pass through the devices one after another: PIPELINE."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.runtime.pipeline import TRIES, WINDOW, Pipeline, PipelineTrial, Window
from partita.accelerators.runtime.steps import plan_run
from partita.graph.interpret import interpret
from tests.accelerators.hetero.small_devices import Ran, device

LONG = 300
"""Seconds after which a test that hangs is given up."""

Hook = Callable[[float], None]


def graph() -> pt.Graph:
    x = pt.variable("x", "float32", (2,))
    return pt.Graph([pt.op("Neg", pt.op("Abs", x, name="first"), name="second")], name="two")


@contextmanager
def compiled(first: Hook, second: Hook, **settings: Any) -> Iterator[pt.CompiledModel]:
    """The model on two devices, each of which calls a function with the request's number."""

    def ran(hook: Hook) -> type:
        def run(self: Any, inputs: Any, out: Any = None) -> Any:
            hook(float(abs(inputs[0][0])))
            return interpret(self.graph, inputs)

        return type("Hooked", (Ran,), {"run": run})

    with device("one", "Abs", subgraph_type=ran(first)), device("two", "Neg", subgraph_type=ran(second)):
        config = {"HETERO": {"PIPELINE": True, "NUM_REQUESTS": 4, "QUEUE_SIZE": 100, **settings}}
        with pt.compile(graph(), "HETERO:one,two", config) as model:
            yield model


def request(number: float) -> np.ndarray:
    return np.full(2, number, np.float32)


def test_one_device_works_on_the_second_request_while_another_is_at_the_first() -> None:
    second_began = threading.Event()

    def first(number: float) -> None:
        if number == 2:
            second_began.set()

    def second(number: float) -> None:
        assert number != 1 or second_began.wait(LONG)

    with compiled(first, second) as model:
        results = [model.start(request(number)) for number in (1, 2)]
        assert [float(result.result(LONG)[0][0]) for result in results] == [-1, -2]


def test_a_request_that_waits_for_room_holds_no_other_up() -> None:
    waits, goes_on = threading.Event(), threading.Event()
    in_time = []

    def without_room(call: Callable[[], Any], placed: Callable[[], None] | None = None) -> Future[Any]:
        waits.set()
        in_time.append(goes_on.wait(300))
        return with_room(call, placed)

    def with_room(call: Callable[[], Any], placed: Callable[[], None] | None = None) -> Future[Any]:
        goes_on.set()
        if placed is not None:
            placed()
        future: Future[Any] = Future()
        future.set_result(call())
        return future

    with compiled(lambda number: None, lambda number: None) as model:
        pipeline = Pipeline(plan_run(model.graph, {unit.name: unit for unit in model.units}))
        waiting = threading.Thread(target=pipeline.submit, args=(without_room, str))
        waiting.start()
        assert waits.wait(LONG)
        assert pipeline.submit(with_room, lambda way: 2).result(LONG) == 2
        waiting.join(LONG)
    assert in_time == [True]


def test_a_device_takes_requests_one_at_a_time_in_the_order_in_which_they_were_started() -> None:
    busy: dict[str, list[float]] = {"first": [], "second": []}
    orders: dict[str, list[float]] = {"first": [], "second": []}
    crowded: list[tuple[str, float]] = []

    def hook(name: str) -> Hook:
        def enter(number: float) -> None:
            busy[name].append(number)
            orders[name].append(number)
            threading.Event().wait(0.005)  # others may come in meanwhile, if nobody holds them up
            if len(busy[name]) > 1:
                crowded.append((name, number))
            busy[name].remove(number)

        return enter

    ended: list[float] = []
    with compiled(hook("first"), hook("second")) as model:
        results = [model.start(request(number)) for number in range(20)]
        for number, result in enumerate(results):
            result.add_done_callback(lambda done, number=number: ended.append(number))
        assert [float(result.result(LONG)[0][0]) for result in results] == [-float(number) for number in range(20)]
    assert not crowded
    assert orders == {"first": list(range(20)), "second": list(range(20))} and ended == list(range(20))


@pytest.mark.parametrize("where", ["first", "second"])
def test_a_request_that_fails_lets_the_others_pass(where: str) -> None:
    def failing(number: float) -> None:
        if number == 2:
            raise ValueError("no twos")

    hooks = {name: failing if name == where else lambda number: None for name in ("first", "second")}
    with compiled(**hooks) as model:
        results = [model.start(request(number)) for number in range(5)]
        with pytest.raises(pt.RunError, match="no twos"):
            results[2].result(LONG)
        assert [float(results[number].result(LONG)[0][0]) for number in (0, 1, 3, 4)] == [0, -1, -3, -4]


def test_a_request_that_is_taken_back_lets_the_others_pass() -> None:
    may_go = threading.Event()

    def waiting(number: float) -> None:
        assert may_go.wait(LONG)

    with compiled(lambda number: None, waiting, NUM_REQUESTS=2) as model:
        results = [model.start(request(number)) for number in range(5)]
        assert results[4].cancel() and results[3].cancel()
        may_go.set()
        assert [float(result.result(LONG)[0][0]) for result in results[:3]] == [0, -1, -2]
        assert float(model.start(request(7)).result(LONG)[0][0]) == -7


def test_a_full_queue_is_an_error_and_holds_up_nobody() -> None:
    may_go = threading.Event()

    def waiting(number: float) -> None:
        assert may_go.wait(LONG)

    with compiled(waiting, lambda number: None, QUEUE_FULL="error", QUEUE_SIZE=1) as model:
        results = [model.start(request(number)) for number in range(5)]
        with pytest.raises(pt.QueueFull):
            model.start(request(9))
        may_go.set()
        assert [float(result.result(LONG)[0][0]) for result in results] == [0, -1, -2, -3, -4]


def test_a_model_of_one_subgraph_has_no_stages() -> None:
    model = pt.compile(graph(), "reference", {"PIPELINE": True})
    assert float(model.start(request(3)).result(LONG)[0][0]) == -3


class Clock:
    """Tells the time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run_windows(trial: PipelineTrial, clock: Clock, windows: int, seconds: dict[bool, float], waits: bool = False) -> None:
    """Two requests at once, each of so many seconds by the way that it runs; `waits`: the next comes when all others are over."""
    running: list[Window] = []

    def end() -> None:
        window = running.pop(0)
        clock.now += seconds[window.in_turn]
        trial.end(window, succeeded=True)

    for _ in range(windows * WINDOW):
        window = trial.begin()
        if window is None:
            break
        running.append(window)
        if len(running) > 2 or waits:
            end()
    while running:
        end()


@pytest.mark.parametrize(("in_turn", "chosen"), [(0.5, True), (0.95, False), (2.0, False)])
def test_the_way_that_is_measured_to_be_faster_stays(in_turn: float, chosen: bool) -> None:
    clock = Clock()
    trial = PipelineTrial(None, clock)
    run_windows(trial, clock, 2 * TRIES, {False: 1.0, True: in_turn})
    assert trial.decided is None
    run_windows(trial, clock, 4, {False: 1.0, True: in_turn})
    assert trial.decided is chosen and trial.begin() is None


def test_requests_that_wait_for_each_other_decide_nothing() -> None:
    clock = Clock()
    trial = PipelineTrial(None, clock)
    run_windows(trial, clock, 40, {False: 1.0, True: 0.1}, waits=True)
    assert trial.decided is None


def test_requests_that_fail_decide_nothing() -> None:
    clock = Clock()
    trial = PipelineTrial(None, clock)
    for _ in range(40 * WINDOW):
        first, second = trial.begin(), trial.begin()
        assert first is not None and second is not None
        trial.end(first, succeeded=True)
        trial.end(second, succeeded=False)
    assert trial.decided is None


def test_while_both_ways_are_tried_results_are_right_and_a_refusal_is_forgotten() -> None:
    may_go = threading.Event()

    def waiting(number: float) -> None:
        assert may_go.wait(LONG)

    with compiled(waiting, lambda number: None, PIPELINE="AUTO", QUEUE_FULL="error", QUEUE_SIZE=1) as model:
        assert model.pipelined is None
        results = [model.start(request(number)) for number in range(5)]
        with pytest.raises(pt.QueueFull):
            model.start(request(9))
        may_go.set()
        assert [float(result.result(LONG)[0][0]) for result in results] == [0, -1, -2, -3, -4]
        for number in range(3 * WINDOW):
            assert float(model.start(request(number)).result(LONG)[0][0]) == -float(number)


def test_the_setting_is_true_false_or_auto() -> None:
    assert pt.compile(graph(), "reference", {"PIPELINE": "auto"}).pipelined is False  # one subgraph has no stages
    with pytest.raises(pt.BadConfig, match="PIPELINE cannot be 'often'"):
        pt.compile(graph(), "reference", {"PIPELINE": "often"})
