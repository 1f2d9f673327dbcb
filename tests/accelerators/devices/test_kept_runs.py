"""Texts about small compiled models, their results and their refusals, compared with kept ones."""

from __future__ import annotations

from functools import cache

import pytest

from tests.accelerators.devices.kept_runs import KEPT, SUBJECTS, lines


@cache
def kept() -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for line in KEPT.read_text("utf-8").splitlines():
        listed.setdefault(" | ".join(line.split(" | ")[:3]), []).append(line)
    return listed


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_model_says_and_does_what_is_kept(subject: str) -> None:
    assert lines(subject) == kept()[subject], "where this is meant: python -m tests.accelerators.devices.kept_runs"
