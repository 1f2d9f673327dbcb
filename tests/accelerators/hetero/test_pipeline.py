"""Requests that pass through the devices one after another: PIPELINE."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import partita as pt
from graph.interpret import interpret
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


def test_the_setting_is_true_or_false() -> None:
    with pytest.raises(pt.BadConfig, match="PIPELINE cannot be 'often'"):
        pt.compile(graph(), "reference", {"PIPELINE": "often"})
