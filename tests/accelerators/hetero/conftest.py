"""Devices that many tests ask for: alpha supports little, beta all."""

from __future__ import annotations

import pytest

from tests.accelerators.hetero.small_devices import device


@pytest.fixture
def alpha():
    with device("alpha", "Relu Add Exp") as plugin:
        yield plugin


@pytest.fixture
def beta():
    with device("beta") as plugin:
        yield plugin
