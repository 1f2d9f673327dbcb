"""Drawn sizes are cut as it is kept, and pieces of kernels are written so: what changes a plan, what a candidate costs or a loop
is seen."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from tests.accelerators.tvm import kept_cuts, kept_pieces
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_cuts.KINDS)
def test_the_cuts_of_a_kind_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_cuts, kind)


@pytest.mark.parametrize("kind", kept_pieces.KINDS)
def test_the_pieces_of_a_kind_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_pieces, kind)
