"""START=now: what is left when a model that starts is closed, forked, or cannot go on."""

from __future__ import annotations

import os
import threading
import warnings

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import CompileError
from partita.accelerators.interface.isolation import background_worker, process
from partita.accelerators.interface.isolation.process import ClassOrigin
from partita.accelerators.runtime.starting.devices import Devices
from partita.graph.readers.text import parse
from tests.accelerators.hetero.small_devices import Small, device

NET = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
NOW = {"HETERO": {"START": "now", "START_WITH": "reference"}}
X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
Y = np.exp(np.maximum(X, 0))


class FakeChild:
    """A process that is none, and starts when the test says so."""

    number = 2**30

    def __init__(self, *args, **options) -> None:
        self.is_alive = True
        children.append(self)

    def start(self, limit: process.Limit) -> None:
        starting.set()
        assert go_on.wait(300)

    def kill(self) -> None:
        self.is_alive = False

    end = kill


children: list[FakeChild] = []
starting, go_on = threading.Event(), threading.Event()


@pytest.fixture
def workshop(monkeypatch):
    children.clear()
    starting.clear()
    go_on.clear()
    monkeypatch.setattr(background_worker, "DeviceChild", FakeChild)
    yield background_worker.Workshop(ClassOrigin("fake", "", "", ""), process.Limit(300.0))
    go_on.set()


def asked(workshop: background_worker.Workshop, errors: list[Exception]) -> threading.Thread:
    def ask() -> None:
        try:
            with workshop.child():
                errors.append(AssertionError("it works on"))
        except CompileError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_a_workshop_that_was_given_up_is_not_started_again(workshop) -> None:
    errors: list[Exception] = []
    threads = [asked(workshop, errors) for _ in range(4)]  # one starts the process, and the others wait
    assert starting.wait(300)
    workshop.give_up()
    go_on.set()
    for thread in threads:
        thread.join()
    assert [error.cause for error in errors] == ["nobody waits for it any more"] * 4
    assert len(children) == 1 and not children[0].is_alive and workshop.current is None


def test_a_process_that_cannot_be_started_leaves_no_open_file(monkeypatch) -> None:
    monkeypatch.setattr(process, "COMMAND", ["/nowhere/python"])
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            process.DeviceChild(ClassOrigin("fake", "", "", ""), quiet=True)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_fork_while_another_thread_holds_the_locks_of_a_model() -> None:
    gate = threading.Event()

    def compile_late(self, graph, config):
        assert gate.wait(300)
        return Small.compile(self, graph, config)

    with device("slow", compile=compile_late):
        model = pt.compile(NET, "slow", NOW)
        with model._work.ready._condition, model._work.may_begin._cond:
            renewed = (model._work.renew, model.renew, lambda: model.ready)  # as a fork does it
            forked = threading.Thread(target=lambda: [step() for step in renewed], daemon=True)
            forked.start()
            forked.join(30)
            assert not forked.is_alive()
        gate.set()
        assert model.wait(300).properties.devices == ("slow",)
        model._work.renew()
        assert model.ready.done() and model.ready.result() is model


def test_a_fork_after_the_compilation_failed() -> None:
    with device("slow", breaks="Exp"), pytest.warns(UserWarning, match="reference goes on"):
        model = pt.compile(NET, "slow", NOW)
        assert isinstance(model.ready.exception(300), pt.CompileError)
        model._work.renew()
        assert model.ready.done() and isinstance(model.ready.exception(), pt.CompileError)


def test_whoever_waits_is_told_though_warnings_are_errors() -> None:
    with device("slow", breaks="Exp"), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = pt.compile(NET, "slow", NOW)
        with pytest.raises(pt.CompileError, match="cannot compile Exp"):
            model.wait(60)
        assert np.array_equal(model(X)[0], Y)


def test_an_error_that_is_none_of_partita_s_is_warned_about_too(monkeypatch) -> None:
    def broken(self):
        raise OSError("no more processes")

    monkeypatch.setattr(Devices, "_compile_own", broken)
    with device("slow"), pytest.warns(UserWarning, match="reference goes on: OSError: no more processes"):
        model = pt.compile(NET, "slow", NOW)
        with pytest.raises(OSError, match="no more processes"):
            model.wait(60)
        assert np.array_equal(model(X)[0], Y)


@pytest.mark.parametrize("devices", ["slow", "HETERO:slow,reference", "HETERO:slow,beta"])
@pytest.mark.parametrize("measured", ["slow", "PERF_COUNT"])
def test_a_model_is_measured_before_and_after_the_change(devices, measured, beta) -> None:
    config = {"slow": {"PERF_COUNT": True}} if measured == "slow" else {"PERF_COUNT": True}
    with device("slow"):
        model = pt.compile(NET, devices, {**NOW, **config})
        model(X)
        assert model.profile().inputs == "the last call"
        model.wait(300)
        assert model.profile(X).inputs != "the last call"
        model(X)
        assert model.profile().inputs == "the last call"
        assert {row.device for row in model.profile().rows} == {"slow"}


def test_the_cache_is_where_it_was_asked_for(tmp_path, monkeypatch) -> None:
    pytest.importorskip("tvm")
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    model = pt.compile(NET, "cpu", {"HETERO": NOW["HETERO"], "cpu": {"CACHE_DIR": "cache"}})
    os.chdir(tmp_path / "two")
    model.wait(300)
    assert (tmp_path / "one" / "cache").is_dir() and not any((tmp_path / "two").iterdir())
