"""Random graphs are partitioned, explained and drawn as is kept."""

from __future__ import annotations

from functools import cache

import pytest

from tests.partition.kept_partitions import KEPT, SUBJECTS, line


@cache
def kept() -> set[str]:
    return set(KEPT.read_text("utf-8").splitlines())


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_partition_is_the_one_that_is_kept(subject: str) -> None:
    assert line(subject) in kept(), "where this is meant: python -m tests.partition.kept_partitions"
