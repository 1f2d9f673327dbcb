"""What is read from drawn arguments and configurations, or said of them, compared with kept lines."""

from __future__ import annotations

from functools import cache

import pytest

from tests.accelerators.kept_arguments import KEPT, KINDS, SUBJECTS, lines


@cache
def kept() -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for line in KEPT.read_text("utf-8").splitlines():
        listed.setdefault(line.partition(" | ")[0], []).append(line)
    return listed


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_that_are_kept(kind: str) -> None:
    for subject in [subject for subject in SUBJECTS if subject.rpartition(" ")[0] == kind]:
        meant = "where this is meant: python -m tests.accelerators.kept_arguments"
        assert lines(subject) == kept().get(subject, []), meant
