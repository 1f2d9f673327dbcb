"""Small variations of MXNet's symbols and of onnxruntime's own ops become what is kept."""

from __future__ import annotations

import pytest

from tests.graphs.kept_variations import kept, lines, subjects


@pytest.mark.parametrize("subject", subjects())
@pytest.mark.thinned(2)
def test_variations_become_what_is_kept(subject: str) -> None:
    expected, every = kept().get(subject, {}), dict(lines(subject))
    assert {name: every.get(name) for name in expected} == expected, "where this is meant: python -m tests.graphs.kept_variations"
