"""Devices that many tests ask for: alpha supports little, beta all. Processes in which `cpu` compiles behind calls. A Python
without its collector of cycles."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest

from partita.accelerators.interface.isolation import background_worker
from tests.accelerators.hetero.small_devices import device


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Nothing but the last reference frees a thing."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def alpha():
    with device("alpha", "Relu Add Exp") as plugin:
        yield plugin


@pytest.fixture
def beta():
    with device("beta") as plugin:
        yield plugin


@pytest.fixture
def workshops(monkeypatch):
    """All workshops that are opened."""
    pytest.importorskip("tvm")
    opened = []
    init = background_worker.Workshop.__init__

    def noted(self, *given) -> None:
        opened.append(self)
        init(self, *given)

    monkeypatch.setattr(background_worker.Workshop, "__init__", noted)
    return opened


@pytest.fixture
def standing(workshops, monkeypatch):
    """All workshops that are opened; their processes are stopped as soon as they are there, so that no test comes too late. A
    process that is killed before it is asked is replaced: tests that kill one wait until it `is_asked`."""
    new_child = background_worker.Workshop.new_child

    def stopped(self):
        child = new_child(self)
        os.kill(child.number, signal.SIGSTOP)
        ask, child.is_asked = child.ask, False

        def asked(*args, **named):
            child.is_asked = True
            return ask(*args, **named)

        child.ask = asked
        return child

    monkeypatch.setattr(background_worker.Workshop, "new_child", stopped)
    return workshops
