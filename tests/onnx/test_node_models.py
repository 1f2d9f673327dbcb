"""ONNX's node tests through the reader and the writer."""

from __future__ import annotations

import pytest

from tests.onnx.node_roundtrip import exceptions, failures, node_cases


@pytest.fixture(scope="module")
def cases():
    return node_cases()


def test_there_are_as_many_models_as_ever(cases):
    assert len(cases) >= 1800


@pytest.mark.parametrize("part", range(6))
@pytest.mark.thinned(2)
def test_every_node_model_comes_through(cases, part):
    failed = dict(failures(cases[part::6]))
    assert failed.keys() <= exceptions().keys(), failed


def test_the_known_exceptions_are_models(cases):
    assert exceptions().keys() <= {case.name for case in cases}
    assert all(exceptions().values()), "each exception has a reason"
