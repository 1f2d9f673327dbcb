"""Graphs of all kinds are written as is kept."""

from __future__ import annotations

import pytest

from tests.onnx.kept_writings import GRAPHS, KEPT, lines


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_written_as_is_kept(name: str) -> None:
    kept = set(KEPT.read_text("utf-8").splitlines())
    assert not [line for line in lines(name) if line not in kept], "where this is meant: python -m tests.onnx.kept_writings"
