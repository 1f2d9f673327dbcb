"""Plans of calls of drawn graphs, and what else is decided while a model runs, compared with kept lines."""

from __future__ import annotations

from functools import cache

import pytest

from tests.accelerators.hetero.kept_steps import KEPT, KINDS, SUBJECTS, lines


@cache
def kept() -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for line in KEPT.read_text("utf-8").splitlines():
        listed.setdefault(line.partition(" | ")[0], []).append(line)
    return listed


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_that_are_kept(kind: str) -> None:
    for subject in [subject for subject in SUBJECTS if subject.rpartition(" ")[0] == kind]:
        meant = "where this is meant: python -m tests.accelerators.hetero.kept_steps"
        assert lines(subject) == kept().get(subject, []), meant
