"""No node ends the process in inference: random attributes and types for every op and version."""

from __future__ import annotations

import os

import pytest

from tests.onnx.inference_crashes import findings

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")


@pytest.mark.slow
def test_some_random_nodes() -> None:
    assert list(findings(0, 3000, 60)) == []


@pytest.mark.slow
def test_many_random_nodes() -> None:
    assert list(findings(100_000, 100_000, 900)) == []
