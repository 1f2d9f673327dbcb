"""Graphs beside those whose kernels are kept: an edit changes them as it did when their sums were written."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from tests.accelerators.tvm.kept_near import batches, kept, line


@pytest.mark.parametrize("number", range(len(batches())))
@pytest.mark.thinned(48)
def test_graphs_beside_others_have_the_kernels_that_are_kept(number: int) -> None:
    for subject in batches()[number]:
        assert line(subject) == kept()[subject], "where this is meant: python -m tests.accelerators.tvm.kept_near"
