"""The sizes that small variations of single ops tell are those that are kept."""

from __future__ import annotations

import pytest

from tests.passes.kept_variations import CASES, kept, lines


@pytest.mark.parametrize("subject", CASES)
@pytest.mark.thinned(2)
def test_variations_tell_what_is_kept(subject: str) -> None:
    expected, every = kept().get(subject, {}), dict(lines(subject))
    assert {name: every.get(name) for name in expected} == expected, "where this is meant: python -m tests.passes.kept_variations"
