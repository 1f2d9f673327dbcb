"""The answers of devices with random transforms about random graphs, compared with kept ones."""

from __future__ import annotations

from functools import cache

import pytest

from tests.accelerators.hetero.kept_queries import KEPT, SUBJECTS, lines


@cache
def kept() -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for line in KEPT.read_text("utf-8").splitlines():
        listed.setdefault(line.partition(" | ")[0], []).append(line)
    return listed


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_device_answers_what_is_kept(subject: str) -> None:
    assert lines(subject) == kept()[subject], "where this is meant: python -m tests.accelerators.hetero.kept_queries"
