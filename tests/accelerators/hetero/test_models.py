"""Whole models on all placements."""

from __future__ import annotations

import pytest

from partita.graph.readers.zoo import zoo_names
from tests.accelerators.hetero.models import check

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

QUICK = ("zoo:squeezenet", "zoo:shufflenet", "many_ops", "squeezenet1.1", "mobilenet0.25", "mobilenetv2_0.25")


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.thinned(2)
def test_small_models_on_every_placement(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"zoo:{name}" for name in zoo_names() if f"zoo:{name}" not in QUICK])
def test_large_models_on_every_placement(name):
    check(name)
