"""Small variations of MXNet's symbols and of onnxruntime's own ops become what is kept."""

from __future__ import annotations

import pytest

from tests.graphs.kept_variations import kept, lines, subjects


@pytest.mark.parametrize("subject", subjects())
def test_variations_become_what_is_kept(subject: str) -> None:
    expected, results = kept().get(subject, {}), dict(lines(subject))
    found = {name: results.get(name) for name in expected}
    assert found == expected, "where this is meant: python -m tests.graphs.kept_variations"
