"""MULTI: a model on each of several devices, and each call on the one that is free."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.runtime.multi import Spreading
from partita.graph.interpret import interpret
from tests.accelerators.hetero.small_devices import Ran, device
from tests.graphs.topologies import alternating

X = np.array([-1.0, 0.5, 2.0, 3.0], np.float32)


class OnOne(Ran):
    """Runs on the device of its configuration, and does there what the test wants."""

    concurrent = True
    action = staticmethod(lambda number: None)

    def __init__(self, graph, number, perf_count):
        super().__init__(graph, perf_count)
        self.number = number

    def run(self, inputs, out=None):
        type(self).action(self.number)
        return interpret(self.graph, inputs)


@pytest.fixture
def pair():
    """An accelerator with two devices; -> a function that sets what their runs do."""
    cls = type("OnOne", (OnOne,), {})
    members = {
        "compile": lambda self, graph, config: cls(graph, config["DEVICE_ID"], config["PERF_COUNT"]),
        "metrics": lambda self: {**Accelerator.metrics(self), "AVAILABLE_DEVICES": ["0", "1"]},
        "config_keys": {"LEVEL": 1},
    }
    with device("pair", **members):

        def does(action):
            cls.action = staticmethod(action)

        yield does


def expected(x=X):
    return interpret(alternating(), [x])[0]


@pytest.mark.parametrize("wanted", ["MULTI:pair.0,pair.1", "MULTI:pair", "multi: pair.0 , pair.1"])
def test_two_calls_at_once_are_on_two_devices(pair, wanted):
    both = threading.Barrier(2, timeout=300)
    seen = []

    def meet(number):
        seen.append(number)
        both.wait()

    pair(meet)
    with pt.compile(alternating(), wanted) as m, ThreadPoolExecutor(2) as threads:
        for item in [*threads.map(m, [X] * 2), *(future.result() for future in [m.start(X), m.start(X)])]:
            np.testing.assert_array_equal(item[0], expected())
    assert Counter(seen) == {"0": 2, "1": 2}


def test_a_device_that_is_busy_gets_no_more(pair):
    begun, done, seen = threading.Event(), threading.Event(), []

    def slow_on_the_first(number):
        seen.append(number)
        if number == "0":
            begun.set()
            done.wait(300)

    pair(slow_on_the_first)
    with pt.compile(alternating(), "MULTI:pair", {"NUM_REQUESTS": 2}) as m:
        first = m.start(X)
        assert begun.wait(300)
        for _ in range(5):
            m(X)
        assert seen == ["0", *"11111"]
        done.set()
        np.testing.assert_array_equal(first.result()[0], expected())
        m(X)
    assert seen[-1] == "0", "free again, and named first"


def test_many_threads_get_their_own_numbers(alpha, beta):
    inputs = [np.full(4, i, np.float32) + X for i in range(40)]
    wanted = [expected(x) for x in inputs]
    with device("gamma"), pt.compile(alternating(), "MULTI:beta,gamma", {"HETERO": {"NUM_REQUESTS": 5}}) as m:
        with ThreadPoolExecutor(16) as threads:
            listed = list(threads.map(m, inputs * 5))
        futures = [m.start(x) for x in inputs]
        for item, right in zip([*listed, *(future.result() for future in futures)], wanted * 6, strict=True):
            np.testing.assert_array_equal(item["d"], right)
        out = np.empty_like(X)
        assert m({"x": X}, out=out)[0] is out
        np.testing.assert_array_equal(out, expected())


def test_a_run_that_fails_frees_its_device(pair):
    def fails(number):
        raise ValueError(f"boo from {number}")

    pair(fails)
    with pt.compile(alternating(), "MULTI:pair", {"NUM_REQUESTS": 2}) as m:
        for _ in range(5):
            with pytest.raises(pt.RunError, match="on 'pair.0': ValueError: boo from 0"):
                m(X)
        pair(lambda number: None)
        np.testing.assert_array_equal(m(X)[0], expected())


def test_what_it_says_of_itself(pair, tmp_path):
    m = pt.compile(alternating(), "MULTI:pair", {"pair": {"LEVEL": 3}, "pair.1": {"PERF_COUNT": False}})
    assert m.properties.devices == ("pair.0", "pair.1") and m.properties.subgraphs == 2
    assert m.properties.optimal_requests == 2 * pt.compile(alternating(), "pair").properties.optimal_requests
    assert repr(m) == "<CompiledModel 'chain' (x -> d): 2 subgraphs on pair.0, pair.1>"
    assert [(row.name, row.device) for row in m.report.subgraphs] == [("pair_0", "pair.0"), ("pair_0", "pair.1")]
    assert m.report.notes[-1] == "each call runs on one of pair.0, pair.1: whichever is free"
    assert [unit.config["LEVEL"] for unit in m.units] == [3, 3] and m.kernels() == []
    assert m.report.to_dict()["notes"] and str(m.report)
    assert {row.device for row in m.profile(X).rows} == {"pair.0"}
    assert {row.device for row in m.models["pair.1"].profile(X).rows} == {"pair.1"}
    with pytest.raises(pt.NotSupported, match=r"not exported\n  Export that of one device: model.models\['pair.0'\].export"):
        m.export(tmp_path / "m.partita")
    assert not list(tmp_path.iterdir())
    m.close()
    for call in (lambda: m(X), lambda: m.models["pair.1"](X), lambda: m.profile(X)):
        with pytest.raises(pt.RunError, match="the model is closed"):
            call()


def test_calls_that_are_measured_are_spread_too(pair):
    both = threading.Barrier(2, timeout=300)
    m = pt.compile(alternating(), "MULTI:pair", {"pair": {"PERF_COUNT": True}})
    pair(lambda number: both.wait())
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(m, [X, X]))
    pair(lambda number: None)
    m(X)
    profile = m.profile()
    assert profile.inputs == "the last call" and {row.device for row in profile.rows} == {"pair.0"}


@pytest.mark.parametrize(
    ("wanted", "config", "error", "message"),
    [
        ("MULTI:pair.0,pair.7", None, pt.BadConfig, "DEVICE_ID cannot be '7'\n  It can be 0, 1"),
        ("MULTI:pair,pair.1", None, pt.AcceleratorError, "'pair.1' is named twice"),
        ("MULTI:piar", None, pt.UnknownDevice, "there is no device 'piar'\n  Did you mean 'pair'"),
        ("MULTI:", None, pt.AcceleratorError, "no device is named"),
        ("MULTI:HETERO", None, pt.UnknownDevice, "HETERO is not a device: it stands for several"),
        ("MULTI:pair", {"LEVEL": 2}, pt.UnknownDevice, "Configure by device"),
        ("MULTI:alpha,pair", None, pt.NotSupported, "alpha has no Softmax"),
    ],
)
def test_what_cannot_be_spread(alpha, pair, wanted, config, error, message):
    with pytest.raises(error) as caught:
        pt.compile(alternating(), wanted, config)
    assert message in str(caught.value)


def test_a_question_about_it(pair):
    with pytest.raises(pt.UnknownDevice, match=r"there is no device 'MULTI:pair'\n  MULTI is for compile"):
        pt.query(alternating(), "MULTI:pair")


def test_a_run_within_a_run_does_not_wait_for_itself():
    class Inner:
        def __init__(self):
            self.outer = None

        def run(self, arrays, *options):
            return self.outer.run([arrays[0] - 1]) if arrays[0] else arrays

    inner = Inner()
    inner.outer = Spreading([inner], [1])
    assert inner.outer.run([3]) == [0]


def test_a_forked_process_has_all_its_devices():
    entered, leave = threading.Event(), threading.Event()

    class Slow:
        def run(self, arrays, *options):
            entered.set()
            leave.wait(300)
            return arrays

    spreading = Spreading([Slow()], [1])
    thread = threading.Thread(target=spreading.run, args=([1],))
    thread.start()
    assert entered.wait(300)
    spreading.renew()
    leave.set()
    assert spreading.run([2]) == [2]
    thread.join()
    assert spreading.run([3]) == [3]
    assert spreading._running == [0]
