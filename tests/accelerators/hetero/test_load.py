"""More requests than a model can serve: a bounded queue, refusals, cancellation, time limits; nothing is left over."""

from __future__ import annotations

import concurrent.futures
import gc
import threading
import time
import weakref

import numpy as np
import pytest

import partita as pt
from partita.accelerators.runtime import requests
from partita.graph.interpret import interpret
from tests.accelerators.hetero.small_devices import Ran, device
from tests.graphs.topologies import alternating

X = np.array([-1.0, 0.5, 2.0, 3.0], np.float32)


class Gate:
    """Lets the calls of a device through, one for each permit."""

    def __init__(self):
        self.entered, self.permits = threading.Semaphore(0), threading.Semaphore(0)

    def run(self, compiled, inputs):
        self.entered.release()
        assert self.permits.acquire(timeout=300)
        return interpret(compiled.graph, inputs)

    def open(self, calls=1000):
        self.permits.release(calls)

    def wait_for_one(self):
        assert self.entered.acquire(timeout=300)


@pytest.fixture
def slow():
    """-> a model with these settings, and the gate before its device."""
    gate = Gate()
    members = {"run": lambda self, inputs, out=None: gate.run(self, inputs), "concurrent": True}
    with device("slow", subgraph_type=type("Slow", (Ran,), members)):
        models = []

        def loaded(**settings):
            models.append(pt.compile(alternating(), "slow", {"NUM_REQUESTS": 1, "QUEUE_SIZE": 2, **settings}))
            return models[-1], gate

        yield loaded
        gate.open()
        for model in models:
            model.close()


class Clock:
    """The clock of the queue's limits: it stands until the test lets it run, so that no slow machine reaches a limit before."""

    def __init__(self):
        self.began = None

    def monotonic(self):
        return 0.0 if self.began is None else time.monotonic() - self.began

    def run(self):
        self.began = time.monotonic()

    def stop(self):
        self.began = None


@pytest.fixture
def clock(monkeypatch):
    stands = Clock()
    monkeypatch.setattr(requests, "time", stands)
    return stands


def until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.002)


def test_a_full_queue_is_an_error_if_the_caller_wants_that(slow):
    m, gate = slow(QUEUE_FULL="error")
    futures = [m.start(X)]
    gate.wait_for_one()
    futures += [m.start(X), m.start(X)]
    with pytest.raises(pt.QueueFull) as caught:
        m.start(X)
    assert str(caught.value).startswith("start: the queue is full: 1 request may run and 2 wait\n  Try again later, raise")
    gate.open()
    for future in futures:
        np.testing.assert_array_equal(future.result(300)[0], interpret(alternating(), [X])[0])
    until(lambda: not m._requests._running)
    assert m.start(X).result(300) is not None


def test_a_waiting_request_that_is_cancelled_never_runs_and_gives_its_place_and_its_inputs_back(slow):
    m, gate = slow(QUEUE_FULL="error")
    first = m.start(X)
    gate.wait_for_one()
    given = X * 2
    gone = weakref.ref(given)
    second, third = m.start(given), m.start(X)
    del given
    assert not first.cancel() and second.cancel() and second.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        second.result()
    second = None
    gc.collect()
    assert gone() is None
    fourth = m.start(X)
    gate.open(2)
    assert [future.result(300) is not None for future in (first, third)] == [True, True]
    assert not fourth.done()
    gate.open()
    assert fourth.result(300) is not None


def test_those_who_wait_for_a_cancelled_request_are_told(slow):
    m, gate = slow()
    first = m.start(X)
    gate.wait_for_one()
    second = m.start(X)
    assert second.cancel()
    done, _ = concurrent.futures.wait([second], 300)
    assert done == {second}
    gate.open()
    assert first.result(300) is not None


def test_a_request_that_hangs_ends_at_its_limit_and_so_do_those_behind_it(clock, slow):
    m, gate = slow(REQUEST_SECONDS=0.3)
    first, second = m.start(X), m.start(X)
    gate.wait_for_one()
    clock.run()
    with pytest.raises(pt.RequestTimeout, match=r"start: it still ran after 0.3 s\n  Ask less at once, or give it more time"):
        first.result(300)
    with pytest.raises(pt.RequestTimeout, match=r"start: it still waited after 0.3 s"):
        second.result(300)
    clock.stop()
    gate.open()
    until(lambda: not m._requests._running)
    assert m.start(X).result(300) is not None, "once the device returns, the thread serves again"


def test_waiting_for_room_counts_as_well():
    leave = threading.Event()
    queue = requests.RequestQueue(1, 0, limit=0.2)
    first = queue.submit(lambda: leave.wait(300))
    with pytest.raises(pt.RequestTimeout, match=r"start: there was no room in the queue for 0.2 s"):
        queue.submit(lambda: None)
    assert isinstance(first.exception(300), pt.RequestTimeout)
    leave.set()


def test_close_waits_for_a_device_that_hangs_no_longer_than_the_limit(clock, slow):
    m, gate = slow(REQUEST_SECONDS=0.2)
    running, waiting = m.start(X), m.start(X)
    gate.wait_for_one()
    clock.run()
    m.close()
    assert isinstance(running.exception(0), pt.RequestTimeout)
    assert waiting.cancelled() or isinstance(waiting.exception(0), pt.RequestTimeout)
    with pytest.raises(pt.RunError, match="the model is closed"):
        m.start(X)


def test_close_lets_those_go_that_wait_for_room(slow):
    m, gate = slow(QUEUE_SIZE=1)
    first, second = m.start(X), m.start(X)
    gate.wait_for_one()
    errors = []

    def third():
        try:
            m.start(X)
        except pt.RunError as error:
            errors.append(error)

    other = threading.Thread(target=third)
    other.start()
    closing = threading.Thread(target=m.close)
    closing.start()
    other.join(300)
    assert "the model is closed" in str(errors[0]) and second.cancelled()
    gate.open()
    closing.join(300)
    assert first.result(0) is not None


def test_errors_reach_the_future_and_the_queue_goes_on():
    seen = []

    def third_fails(self, inputs, out=None):
        seen.append(1)
        if len(seen) % 3 == 0:
            raise ValueError("boo")
        return interpret(self.graph, inputs)

    with device("third", subgraph_type=type("Third", (Ran,), {"run": third_fails})):
        m = pt.compile(alternating(), "third", {"NUM_REQUESTS": 1})
        errors = [m.start(X).exception(300) for _ in range(30)]
        assert sum(error is not None for error in errors) == 10
        assert {str(error) for error in errors if error} == {"subgraph 'third_0' on 'third': ValueError: boo"}
        m.close()


def test_threads_go_when_nobody_asks_and_a_model_that_is_dropped_leaves_none(slow, monkeypatch):
    monkeypatch.setattr(requests, "LINGER", 0.05)
    before = threading.active_count()
    m, gate = slow(NUM_REQUESTS=3, QUEUE_SIZE=20)
    gate.open()
    for future in [m.start(X) for _ in range(20)]:
        future.result(300)
    until(lambda: threading.active_count() <= before)
    assert m.start(X).result(300) is not None
    until(lambda: threading.active_count() <= before)


@pytest.mark.parametrize("limit", [None, 300.0])
def test_thirty_two_threads_that_ask_and_cancel_get_right_answers_and_leave_nothing(limit, beta):
    m = pt.compile(alternating(), "beta", {"NUM_REQUESTS": 4, "QUEUE_SIZE": 6, "QUEUE_FULL": "error", "REQUEST_SECONDS": limit})
    wanted = {scale: interpret(alternating(), [X * scale])[0] for scale in range(32)}
    counts, wrong = {"right": 0, "full": 0, "cancelled": 0}, []
    guard = threading.Lock()

    def note(kind):
        with guard:
            counts[kind] += 1

    def ask(scale):
        for i in range(60):
            try:
                future = m.start(X * scale)
            except pt.QueueFull:
                note("full")
                continue
            if i % 3 == 0 and future.cancel():
                note("cancelled")
            elif np.array_equal(future.result(300)[0], wanted[scale]):
                note("right")
            else:
                wrong.append(scale)

    threads = [threading.Thread(target=ask, args=(scale,)) for scale in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and sum(counts.values()) == 32 * 60 and counts["right"] >= 60
    queue = m._requests
    until(lambda: not queue._running and not queue._waiting)
    m.close()


def test_no_thread_can_be_started(monkeypatch):
    """As when the interpreter ends, or too many run: an error, and no request that waits for ever."""

    def refuse(self):
        raise RuntimeError("can't start new thread")

    queue = requests.RequestQueue(1, 1)
    with monkeypatch.context() as patch, pytest.raises(pt.RunError, match="start: no thread can be started for it: can't start"):
        patch.setattr(threading.Thread, "start", refuse)
        queue.submit(lambda: None)
    assert queue.submit(lambda: 5).result(300) == 5
    queue.close()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"QUEUE_FULL": "drop"}, "QUEUE_FULL"),
        ({"QUEUE_FULL": 3}, "QUEUE_FULL"),
        ({"REQUEST_SECONDS": 0}, "REQUEST_SECONDS"),
        ({"REQUEST_SECONDS": "soon"}, "REQUEST_SECONDS"),
        ({"REQUEST_SECONDS": float("inf")}, "REQUEST_SECONDS"),
        ({"REQUEST_SECONDS": True}, "REQUEST_SECONDS"),
    ],
)
def test_wrong_settings_are_errors_that_name_the_key(config, message, beta):
    with pytest.raises(pt.BadConfig, match=message):
        pt.compile(alternating(), "beta", config)


def test_a_thousand_cancelled_requests_take_no_memory(slow):
    m, gate = slow(QUEUE_SIZE=2)
    first = m.start(X)
    gate.wait_for_one()
    given = []
    for _ in range(1000):
        inputs = X * 2
        given.append(weakref.ref(inputs))
        assert m.start(inputs).cancel()
    del inputs
    gc.collect()
    assert not any(array() is not None for array in given) and not m._requests._waiting
    gate.open()
    assert first.result(300) is not None
