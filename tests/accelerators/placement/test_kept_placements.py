"""Placements, certificates, what-ifs and locked plans of drawn graphs, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.accelerators.placement import kept_placements
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_placements.KINDS)
def test_placements_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_placements, kind)
