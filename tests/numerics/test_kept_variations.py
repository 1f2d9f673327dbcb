"""The reference computes of small variations of single ops what is kept."""

from __future__ import annotations

import pytest

from tests.numerics.kept_variations import CASES, is_same, kept, result, variations


@pytest.mark.parametrize("subject", CASES)
def test_variations_compute_what_is_kept(subject: str) -> None:
    expected, case = kept().get(subject, {}), CASES[subject]
    results = {name: result(case, *rest) for name, *rest in variations(case) if name in expected}
    others = {name: (results.get(name), text) for name, text in expected.items() if not is_same(results.get(name, ""), text)}
    assert not others, "where this is meant: python -m tests.numerics.kept_variations"
