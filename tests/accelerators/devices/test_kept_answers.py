"""Answers about small variations of single ops before they run are those that are kept."""

from __future__ import annotations

import pytest

from tests.accelerators.devices.kept_answers import CASES, kept, lines


@pytest.mark.parametrize("subject", CASES)
@pytest.mark.thinned(4)
def test_variations_are_answered_as_is_kept(subject: str) -> None:
    expected, every = kept().get(subject, {}), dict(lines(subject))
    where = "where this is meant: python -m tests.accelerators.devices.kept_answers"
    assert {name: every.get(name) for name in expected} == expected, where
