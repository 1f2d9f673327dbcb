"""Whole models exported on every device and imported in a fresh process: the same answers."""

from __future__ import annotations

import pytest

import partita as pt
from benchmarks.travel import DEVICES, SMALL, all_models, travel
from partita.accelerators.errors import NotSupported
from partita.accelerators.interface.registry import accelerator


def check(model, device):
    for name in device.removeprefix("HETERO:").split(","):
        try:
            accelerator(name)
        except pt.AcceleratorUnavailable as error:
            pytest.skip(str(error))
    try:
        result = travel(model, device)
    except NotSupported as error:
        assert "HETERO" not in device
        pytest.skip(str(error))
    print(result)
    assert result.difference <= 1e-6
    assert result.subgraphs > ("HETERO" in device)


@pytest.mark.parametrize("device", ["onnxruntime", "reference", "HETERO:onnxruntime,reference"])
@pytest.mark.thinned(2)
def test_a_small_bert(device):
    check(str(SMALL[0]), device)


@pytest.mark.slow
@pytest.mark.parametrize("model", all_models())
@pytest.mark.parametrize("device", DEVICES)
def test_each_model_on_each_device(model, device):
    check(model, device)
