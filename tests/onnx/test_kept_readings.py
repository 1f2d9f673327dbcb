"""ONNX models with one field changed are read, or refused, as is kept."""

from __future__ import annotations

import pytest

from tests.onnx.kept_readings import bases, kept, lines


@pytest.mark.parametrize("subject", bases())
def test_a_changed_model_is_read_as_it_was(subject: str) -> None:
    assert dict(lines(subject)) == kept()[subject], "where this is meant: python -m tests.onnx.kept_readings"
