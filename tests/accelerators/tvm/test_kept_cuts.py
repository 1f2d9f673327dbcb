"""Drawn sizes are cut as it is kept: what changes a plan, or what a candidate costs, is seen."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from tests.accelerators.tvm import kept_cuts
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_cuts.KINDS)
def test_the_cuts_of_a_kind_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_cuts, kind)
