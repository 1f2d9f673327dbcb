"""Comparisons, diagnoses, searches and anonymous subgraphs, compared with kept lines."""

from __future__ import annotations

from functools import cache

import pytest

from tests.insight.kept_measures import KEPT, KINDS, SUBJECTS, lines


@cache
def kept() -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for line in KEPT.read_text("utf-8").splitlines():
        listed.setdefault(line.partition(" | ")[0], []).append(line)
    return listed


@pytest.mark.parametrize("kind", KINDS)
def test_measures_are_those_that_are_kept(kind: str) -> None:
    for subject in [subject for subject in SUBJECTS if subject.rpartition(" ")[0] == kind]:
        meant = "where this is meant: python -m tests.insight.kept_measures"
        assert lines(subject) == kept().get(subject, []), meant
