"""A sample of the sweep of planted faults on real devices, and all of it."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from tests.graphs.small_models import convolutions, transformer
from tests.insight.planting import KINDS
from tests.insight.sweep import DEVICES, Subject, main, swept


def small(graph: pt.Graph) -> Subject:
    typed = pt.apply_pass(graph, "InferShape")
    (x,) = typed.inputs
    array = np.random.default_rng(1).standard_normal(x[0].type.shape, np.float32)  # type: ignore[union-attr,arg-type]
    return Subject(typed.name, typed, {x.name: array})


def test_faults_on_real_devices_are_found() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    pytest.importorskip("tvm")
    subjects = [small(convolutions()), small(transformer())]
    results = list(swept(subjects, DEVICES, 2 * len(KINDS), "reference"))
    assert {(one.device, one.model) for one in results} == {(device, one.name) for device in DEVICES for one in subjects}
    assert not [str(one) for one in results if not (one.exact and one.within)]


@pytest.mark.slow
def test_two_hundred_faults_in_fifteen_models() -> None:
    """Takes about an hour on two cores."""
    assert main(["--count", "200"]) == 0
