"""The sizes that each op tells are those that are kept."""

from __future__ import annotations

from functools import cache

import pytest

from tests.passes.kept_sizes import KEPT, SUBJECTS, line


@cache
def kept() -> set[str]:
    return set(KEPT.read_text("utf-8").splitlines())


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_is_said_of_sizes_is_what_is_kept(subject: str) -> None:
    assert line(subject) in kept(), "where this is meant: python -m tests.passes.kept_sizes"
